package manifests

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sonde-probe/sonde/kube"
)

// ports maps ports of this machine to the names of targets, to find containers that use the same port. In a cluster each pod
// has its own ports; processes on one machine share them.
type ports map[uint16]string

// add adds the ports of a container that runs as a process. It returns a sentence about a port that another container also
// uses, or "".
func (p ports) add(c kube.Container) (conflict string) {
	for _, port := range portsOf(c) {
		if other, used := p[port]; used && other != c.Target.Name {
			conflict = fmt.Sprintf("port %d is also used by %s, and processes share the ports of this machine", port, other)
		}
		p[port] = c.Target.Name
	}
	return conflict
}

// portsOf returns the ports on which a container listens according to its manifest: named ports, and the ports of its probes.
// They are sorted.
func portsOf(c kube.Container) []uint16 {
	ports := slices.Collect(maps.Values(c.Target.Ports))
	for _, p := range c.Probes {
		if port, err := c.Target.Port(p.Port); err == nil && p.Host == "" {
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
