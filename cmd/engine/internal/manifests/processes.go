package manifests

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/restart"
)

// Process is a container, and how it runs as a process of this machine.
type Process struct {
	kube.Container
	Argv   []string           // nil: it does not
	Reason string             // why not
	Signal restart.StopSignal // by which it is asked to exit; 0 for the default
}

// Processes returns the containers of a manifest in the order in which they start: init containers and sidecars, and then all others.
// A pod without an address has that of processes of this machine. What has to wait for an init container that cannot run cannot run either, and
// nothing waits for a sidecar that cannot.
func (e Entrypoints) Processes(m kube.Manifest) ([]Process, error) {
	m.SetAddress(Loopback)
	containers, err := m.Processes()
	if err != nil {
		return nil, err
	}
	isFirst := func(c kube.Container) bool { return c.Init || c.Sidecar }
	if n := slices.IndexFunc(containers, isFirst); n > 0 {
		containers = slices.Concat(containers[n:], containers[:n])
	}
	all, blocking, missing := []Process(nil), "", map[string]bool{}
	for _, c := range containers {
		c.StartAfter = slices.DeleteFunc(c.StartAfter, func(target string) bool { return missing[target] })
		p, obstacles := e.process(c)
		if blocking != "" {
			obstacles = append(obstacles, fmt.Sprintf("init container %q must run first", blocking))
		}
		if len(obstacles) > 0 {
			p.Argv, missing[c.Target.Name] = nil, true
		}
		if p.Argv == nil && c.Init {
			blocking = cmp.Or(blocking, c.Name)
		}
		p.Reason = strings.Join(obstacles, "; ")
		all = append(all, p)
	}
	return all, nil
}

// process returns a container as a process, and what keeps it from running here by itself.
func (e Entrypoints) process(c kube.Container) (p Process, obstacles []string) {
	p.Container = c
	var err error
	if p.Argv, err = e.Command(c); err != nil {
		obstacles = append(obstacles, err.Error())
	}
	obstacles = append(obstacles, c.Obstacles...)
	if c.StopSignal != "" {
		if err := p.Signal.UnmarshalText([]byte(c.StopSignal)); err != nil {
			obstacles = append(obstacles, "lifecycle.stopSignal: "+err.Error())
		}
	}
	return p, obstacles
}

// RestartPolicy returns a container's restart policy.
func RestartPolicy(c kube.Container) restart.Policy {
	policies := map[string]restart.Policy{"Always": restart.Always, "OnFailure": restart.OnFailure, "Never": restart.Never}
	return policies[string(c.RestartPolicy)]
}
