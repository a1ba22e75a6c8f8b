package dial

import (
	"cmp"
	"net/netip"
	"slices"
)

// family selects the IP addresses of a name that are used. The zero family uses all, in the resolver's order.
type family string

// The families that filter or sort addresses.
const (
	ipv4    family = "4"
	ipv6    family = "6"
	prefer4 family = "prefer_4" // IPv4 addresses first
	prefer6 family = "prefer_6" // IPv6 addresses first
)

// has reports whether an address belongs to the family.
func (f family) has(ip netip.Addr) bool {
	return f != ipv4 && f != ipv6 || ip.Unmap().Is4() == (f == ipv4)
}

// sort sorts addresses by preference, in place.
func (f family) sort(ips []netip.Addr) {
	if f != prefer4 && f != prefer6 {
		return
	}
	rank := func(ip netip.Addr) int {
		if ip.Is4() == (f == prefer4) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ips, func(a, b netip.Addr) int { return cmp.Compare(rank(a), rank(b)) })
}
