package grant

import (
	"net/netip"
	"slices"
)

// services lists the metadata services of clouds, which give credentials to any client. Services
// with link-local addresses need no entry here.
var services = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS: instances, EKS pods, time and DNS
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google
	netip.MustParsePrefix("fd00:42::42/128"),    // Scaleway
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle
}

// needsOwnEntry reports whether an address is granted only by an entry with that exact address.
func needsOwnEntry(ip netip.Addr) bool {
	embedded := embeddedIPv4(ip)
	if slices.ContainsFunc(embedded, func(v4 netip.Addr) bool { return needsOwnEntry(v4) || v4.IsLoopback() }) {
		return true
	}
	if slices.ContainsFunc(services, func(p netip.Prefix) bool { return p.Contains(ip.WithZone("")) }) {
		return true
	}
	return ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// embeddings has the positions of the bytes of an IPv4 address in IPv6 addresses that a router
// translates or unwraps to it: NAT64 (RFC 6052, section 2.2; RFC 8215 leaves the form to the
// operator), 6to4 (RFC 3056), and the old IPv4-translated (RFC 2765) and IPv4-compatible addresses
// (RFC 4291, section 2.5.5.1).
var embeddings = []struct {
	block netip.Prefix
	bytes [4]int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), [4]int{12, 13, 14, 15}},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{6, 7, 9, 10}},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{7, 9, 10, 11}},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{9, 10, 11, 12}},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{12, 13, 14, 15}},
	{netip.MustParsePrefix("2002::/16"), [4]int{2, 3, 4, 5}},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), [4]int{12, 13, 14, 15}},
	{netip.MustParsePrefix("::/96"), [4]int{12, 13, 14, 15}},
}

// embeddedIPv4 returns the IPv4 addresses that an IPv6 address may lead to.
func embeddedIPv4(ip netip.Addr) (all []netip.Addr) {
	if !ip.Is6() {
		return nil
	}
	b := ip.As16()
	for _, e := range embeddings {
		if e.block.Contains(ip.WithZone("")) {
			all = append(all, netip.AddrFrom4([4]byte{b[e.bytes[0]], b[e.bytes[1]], b[e.bytes[2]], b[e.bytes[3]]}))
		}
	}
	return all
}
