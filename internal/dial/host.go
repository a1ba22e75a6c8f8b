package dial

import (
	"net/netip"
	"strings"
)

// MaxHostName is how long a host name may be, in bytes (RFC 1035, section 2.3.4).
const MaxHostName = 253

// hostProblem says what is wrong with an IP address or host name, in words that
// follow the host in a sentence, or "".
func hostProblem(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.IsUnspecified() {
			return "which is no address to connect to"
		}
		return ""
	}
	switch {
	case strings.HasPrefix(host, "["):
		return "it must be written without brackets"
	case strings.Contains(host, "://"):
		return "it must be a host alone, not a URL"
	case strings.Contains(host, ":"):
		return "it must be a host alone, without a port"
	case len(host) > MaxHostName || strings.ContainsFunc(host, notInName) || hasEmptyLabel(host):
		return "it must be an IP address or a host name"
	}
	return ""
}

// nameBytes are the bytes of host names as they are in use. The underscore is in
// no standard for hosts, yet in many a name.
const nameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

func hasEmptyLabel(host string) bool {
	host = strings.TrimSuffix(host, ".")
	return host == "" || strings.HasPrefix(host, ".") || strings.Contains(host, "..")
}

func notInName(r rune) bool { return !strings.ContainsRune(nameBytes, r) }
