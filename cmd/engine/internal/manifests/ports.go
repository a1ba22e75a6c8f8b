package manifests

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sonde-probe/sonde/kube"
)

// ports finds containers that use the same port of this machine. In a cluster each
// pod has its own ports; processes here share them. The keys are ports, the values
// names of targets.
type ports map[uint16]string

// add adds the ports of a container that runs as a process. It returns a sentence
// about a port that another container uses, too, or "".
func (p ports) add(c kube.Container) (conflict string) {
	for _, port := range portsOf(c) {
		if other, used := p[port]; used && other != c.Target.Name {
			conflict = fmt.Sprintf("port %d is also used by %s, and processes share the ports of this machine", port, other)
		}
		p[port] = c.Target.Name
	}
	return conflict
}

// portsOf returns the ports that a container listens on according to its manifest:
// those with names, and those that its probes connect to. They are sorted.
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
