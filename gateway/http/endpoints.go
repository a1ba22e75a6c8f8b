package httpgateway

import (
	"fmt"
	"net/netip"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// Endpoint is a member of a group as Envoy has it.
type Endpoint struct {
	Target  string
	Address netip.AddrPort
	Health  string // "HEALTHY", "DEGRADED", "DRAINING" or "UNHEALTHY"
	Weight  int    // 1 to probe.MaxWeight
}

// Serves reports whether the endpoint gets requests.
func (e Endpoint) Serves() bool { return e.Health == "HEALTHY" || e.Health == "DEGRADED" }

// Endpoints returns the members of a group as endpoints, sorted by the names of their targets,
// and an error if some is left out: it has no IP address or no port, or another one has the same.
// With degradedStatus degraded members are DEGRADED, otherwise HEALTHY. A target that does not
// exist yet is no endpoint, and no error.
func Endpoints(v *group.View, degradedStatus bool) (all []Endpoint, problem error) {
	by := map[netip.AddrPort]string{} // the target that has it
	for m := range v.Members() {
		ip, err := netip.ParseAddr(m.Address)
		address := netip.AddrPortFrom(ip, m.Port)
		first, used := by[address]
		switch {
		case m.Address == "" && m.State == probe.GatewayUndecided:
		case err != nil || ip.Zone() != "" || m.Port == 0:
			problem = fmt.Errorf("member %q is left out: endpoints need an IP address and a port, and it has %.80q and %d", m.Target, m.Address, m.Port)
		case used:
			problem = fmt.Errorf("member %q is left out: %q has the same address and port", m.Target, first)
		default:
			by[address] = m.Target
			health, weight := healthOf(m, degradedStatus)
			all = append(all, Endpoint{m.Target, address, health, weight})
		}
	}
	return all, problem
}

// healthOf returns the health and the weight of a member. One that is in rotation gets requests
// whatever its state is; the least weight that Envoy knows is 1.
func healthOf(m *group.Member, degradedStatus bool) (health string, weight int) {
	weight = max(m.Weight, 1)
	switch {
	case m.InRotation && m.State == probe.GatewayDegraded && degradedStatus:
		return "DEGRADED", weight
	case m.InRotation:
		return "HEALTHY", weight
	case m.State.TakesRequests(), m.State == probe.GatewayDraining: // by a weight of 0, or since it ends
		return "DRAINING", weight
	}
	return "UNHEALTHY", weight
}
