package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sonde-probe/sonde/adapter/kube"
)

// portUsers says which container uses a port of this machine. In a cluster each pod
// has ports of its own; its processes here share them.
type portUsers map[uint16]string

// add notes the ports of a container that is run as a process, and says which of them
// another one has already.
func (u portUsers) add(c kube.Container) (problem string) {
	for _, port := range portsOf(c) {
		if other, used := u[port]; used && other != c.Target.Name {
			problem = fmt.Sprintf("port %d is also that of %s, and processes share the ports of this machine", port, other)
		}
		u[port] = c.Target.Name
	}
	return problem
}

// portsOf returns the ports that a container listens on, as far as its manifest tells:
// those that have names and those that its probes ask. They are sorted.
func portsOf(c kube.Container) []uint16 {
	ports := slices.Collect(maps.Values(c.Target.Ports))
	for _, p := range c.Probes {
		text, host := "", ""
		switch {
		case p.HTTP != nil:
			text, host = p.HTTP.Port, p.HTTP.Host
		case p.TCP != nil:
			text, host = p.TCP.Port, p.TCP.Host
		case p.GRPC != nil:
			text = p.GRPC.Port
		}
		if port, err := c.Target.Port(text); err == nil && host == "" {
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
