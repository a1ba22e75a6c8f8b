package dial

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sonde-probe/sonde/probe"
)

// Family says which IP addresses of a name are used. The zero Family uses all, in the resolver's order.
type Family string

// The families.
const (
	AnyFamily Family = "any"
	IPv4      Family = "4"
	IPv6      Family = "6"
	Prefer4   Family = "prefer_4" // IPv4 addresses first
	Prefer6   Family = "prefer_6" // IPv6 addresses first
)

func (f Family) check() error {
	if !slices.Contains([]Family{"", AnyFamily, IPv4, IPv6, Prefer4, Prefer6}, f) {
		return probe.FieldErrorf("ip_family", `is %q; it must be "any", "4", "6", "prefer_4" or "prefer_6"`, string(f))
	}
	return nil
}

// has reports whether an address is of the family.
func (f Family) has(ip netip.Addr) bool {
	return f != IPv4 && f != IPv6 || ip.Unmap().Is4() == (f == IPv4)
}

// sort sorts addresses by preference, in place.
func (f Family) sort(ips []netip.Addr) {
	if f != Prefer4 && f != Prefer6 {
		return
	}
	rank := func(ip netip.Addr) int {
		if ip.Is4() == (f == Prefer4) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ips, func(a, b netip.Addr) int { return cmp.Compare(rank(a), rank(b)) })
}
