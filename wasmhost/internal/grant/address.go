package grant

import "net/netip"

// needsOwnEntry reports whether an address is only granted by an entry with that very
// address.
func needsOwnEntry(ip netip.Addr) bool {
	if v4, ok := embeddedIPv4(ip); ok {
		return needsOwnEntry(v4) || v4.IsLoopback()
	}
	switch ip.String() {
	case "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192": // metadata services of AWS and Google over IPv6, Alibaba, Azure, Oracle
		return true
	}
	return ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// embeddedIPv4 returns the IPv4 address that an IPv6 address leads to where a router
// translates or unpacks it: NAT64 (RFC 6052, RFC 8215), 6to4 (RFC 3056), and the old
// IPv4-compatible addresses (RFC 4291, section 2.5.5.1).
func embeddedIPv4(ip netip.Addr) (netip.Addr, bool) {
	if !ip.Is6() {
		return ip, false
	}
	b := ip.As16()
	for _, form := range []struct {
		block  string
		offset int // of the IPv4 address
	}{{"64:ff9b::/96", 12}, {"64:ff9b:1::/48", 12}, {"2002::/16", 2}, {"::/96", 12}} {
		if netip.MustParsePrefix(form.block).Contains(ip) {
			return netip.AddrFrom4([4]byte(b[form.offset:])), true
		}
	}
	return ip, false
}
