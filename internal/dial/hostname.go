package dial

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// MaxHostName is the maximum length of a host name in DNS, in bytes (RFC 1035, section 2.3.4).
const MaxHostName = 253

// hostNameBytes are the bytes that occur in host names. No standard for hosts has the underscore, but many names do.
const hostNameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

// international converts international names for lookups (RFC 5891, UTS 46). It keeps underscores, as in hostNameBytes.
var international = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false))

// CanonicalHost returns the form of a host in which it is looked up, compared and shown: "xn--bcher-kva.example" for
// "bücher.example". Text in ASCII, or that cannot be a name, stays as it is.
func CanonicalHost(host string) string {
	if strings.IndexFunc(host, func(r rune) bool { return r > '~' }) < 0 || len(host) > 4*MaxHostName || !utf8.ValidString(host) {
		return host
	}
	plain, err := international.ToASCII(host)
	if err != nil || strings.Trim(plain, hostNameBytes+"*?") != "" || plain == "" {
		return host
	}
	return plain
}

// HostID returns an ID that is equal for all spellings of a host: the canonical form in lower case, without a final dot; an
// IPv4-mapped IPv6 address becomes an IPv4 address. It is for comparisons only: lookups of a name with a final dot skip the search
// domains.
func HostID(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return strings.TrimSuffix(strings.ToLower(CanonicalHost(host)), ".")
}

// CanonicalURL makes the host of a URL canonical: see CanonicalHost.
func CanonicalURL(u *url.URL) {
	host := u.Hostname()
	switch plain := CanonicalHost(host); {
	case plain == host:
	case u.Port() == "":
		u.Host = plain
	default:
		u.Host = net.JoinHostPort(plain, u.Port())
	}
}

// IsHostName reports whether s can be a host name. A final dot is allowed.
func IsHostName(s string) bool {
	return s != "" && len(s) <= MaxHostName && strings.Trim(s, hostNameBytes) == "" &&
		!strings.HasPrefix(s, ".") && !strings.Contains(s, "..")
}

// IPv4Hint is the hint for an address for which IsMistypedIPv4 is true.
const IPv4Hint = "an IPv4 address has four numbers from 0 to 255, without leading zeros"

// IsMistypedIPv4 reports whether a host consists of digits and dots but is not an IPv4 address: "300.1.2.3", "10.0.0". No host has
// such a name, since top-level domains have letters (RFC 1123, section 2.1).
func IsMistypedIPv4(host string) bool {
	if !strings.Contains(host, ".") || strings.Trim(host, "0123456789.") != "" {
		return false
	}
	_, err := netip.ParseAddr(host)
	return err != nil
}

// IsLoopback reports whether a host is localhost or a loopback address.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// HostProblem returns why a connection to an IP address or a host name is impossible, as words that follow it in a sentence, or "".
func HostProblem(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.IsUnspecified() {
			return ", which is not an address to connect to"
		}
		return ""
	}
	switch {
	case strings.HasPrefix(host, "["):
		return "; it must be written without brackets"
	case strings.Contains(host, "://"):
		return "; it must be a host, not a URL"
	case strings.Contains(host, ":"):
		return "; it must be a host without a port"
	case !IsHostName(host):
		return "; it must be an IP address or a host name"
	}
	return ""
}
