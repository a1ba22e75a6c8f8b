package dial

import (
	"net/netip"
	"strings"
)

// MaxHostName is the longest host name that DNS allows, in bytes (RFC 1035, section
// 2.3.4).
const MaxHostName = 253

// hostNameBytes are the bytes of the host names in use. No standard for hosts has the
// underscore, yet many names do.
const hostNameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

// IsHostName reports whether s can be a host name. A dot at its end is allowed.
func IsHostName(s string) bool {
	return s != "" && len(s) <= MaxHostName && strings.Trim(s, hostNameBytes) == "" &&
		!strings.HasPrefix(s, ".") && !strings.Contains(s, "..")
}

// IsLoopback reports whether a host is localhost or a loopback address.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// HostProblem says what is wrong with an IP address or a host name to connect to, in
// words that follow it in a sentence, or returns "".
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
