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
	Argv   []string // nil: it does not
	Reason string   // why not, to follow "since"
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
	slices.SortStableFunc(containers, func(a, b kube.Container) int { return compareBool(isFirst(b), isFirst(a)) })
	all, blocking, missing := []Process(nil), "", map[string]bool{}
	for _, c := range containers {
		c.StartAfter = slices.DeleteFunc(c.StartAfter, func(target string) bool { return missing[target] })
		argv, obstacles := e.process(c)
		if blocking != "" {
			obstacles = append(obstacles, fmt.Sprintf("init container %q must run first", blocking))
		}
		if len(obstacles) > 0 {
			argv, missing[c.Target.Name] = nil, true
		}
		if argv == nil && c.Init {
			blocking = cmp.Or(blocking, c.Name)
		}
		all = append(all, Process{c, argv, strings.Join(obstacles, "; ")})
	}
	return all, nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// process returns the program and the arguments of a container, and what keeps it from running here by itself.
func (e Entrypoints) process(c kube.Container) (argv, obstacles []string) {
	argv, err := e.Command(c)
	if err != nil {
		obstacles = append(obstacles, err.Error())
	}
	obstacles = append(obstacles, c.Obstacles...)
	if _, err := StopSignal(c); err != nil {
		obstacles = append(obstacles, err.Error())
	}
	return argv, obstacles
}

// RestartPolicy returns a container's restart policy.
func RestartPolicy(c kube.Container) restart.Policy {
	policies := map[string]restart.Policy{"Always": restart.Always, "OnFailure": restart.OnFailure, "Never": restart.Never}
	return policies[string(c.RestartPolicy)]
}

// StopSignal returns by which signal a container is asked to exit, 0 if its manifest does not say so, or an error if that is none of
// this machine.
func StopSignal(c kube.Container) (s restart.StopSignal, err error) {
	if c.StopSignal == "" {
		return 0, nil
	}
	if err = s.UnmarshalText([]byte(c.StopSignal)); err != nil {
		return 0, fmt.Errorf("lifecycle.stopSignal: %w", err)
	}
	return s, nil
}
