package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/restart"
	runtime "github.com/sonde-probe/sonde/restart/container"
)

// container is a container, with the settings to run it as a process of this machine or in its container runtime.
type container struct {
	kube.Container
	Argv    []string        // of the process; nil for none
	In      *runtime.Config // for a container runtime; nil for none
	Lost    []string        // sentences about features that are lost in the runtime
	Reason  string          // why it does not run; "" if it does
	Unit    restart.Unit    // for stopping and restarting it
	LeftOut string          // parts of the manifest that are left out, and why; "" for none
}

// containers returns the containers of a manifest in the order in which they start: init containers and sidecars, then all
// others. A pod without an address gets the loopback address. If an init container cannot run, the containers that must wait
// for it cannot run either. If a sidecar cannot run, no container waits for it.
func (e entrypoints) containers(m kube.Manifest) ([]container, error) {
	m.SetAddress(loopback)
	return inOrder(m, e.process)
}

// inOrder implements containers. convert returns how a container runs, and the obstacles that prevent it from running.
func inOrder(m kube.Manifest, convert func(kube.Container) (container, []string)) ([]container, error) {
	containers, err := m.Containers()
	if err != nil {
		return nil, err
	}
	isFirst := func(c kube.Container) bool { return c.Init || c.Sidecar }
	if n := slices.IndexFunc(containers, isFirst); n > 0 {
		containers = slices.Concat(containers[n:], containers[:n])
	}
	all, blocking, missing := []container(nil), "", map[string]bool{}
	for _, c := range containers {
		c.StartAfter = slices.DeleteFunc(c.StartAfter, func(target string) bool { return missing[target] })
		p, obstacles := convert(c)
		if blocking != "" {
			obstacles = append(obstacles, fmt.Sprintf("init container %q must run first", blocking))
		}
		if len(obstacles) > 0 {
			p.Argv, missing[c.Target.Name] = nil, true
		}
		if p.Reason = strings.Join(obstacles, "; "); p.Reason != "" && c.Init {
			blocking = cmp.Or(blocking, c.Name)
		}
		all = append(all, p)
	}
	return all, nil
}

// process converts a container to a process. It also returns the obstacles that prevent it from running here.
func (e entrypoints) process(c kube.Container) (p container, obstacles []string) {
	argv, err := e.command(c)
	if err != nil {
		obstacles = append(obstacles, err.Error())
	}
	p, more := lifecycle(c, escaped)
	p.Argv = argv
	return p, slices.Concat(obstacles, c.Obstacles, more)
}

// lifecycle returns the settings for stopping and restarting a container, and the obstacles that prevent it from running. words
// converts the command of a hook.
func lifecycle(c kube.Container, words func([]string) []string) (p container, obstacles []string) {
	p.Container = c
	p.Unit = restart.Unit{
		Policy: restartPolicy(c), RestartExitCodes: c.RestartExitCodes, TerminationGracePeriod: c.TerminationGracePeriod, Oneshot: c.Init,
	}
	if c.StopSignal != "" {
		if err := p.Unit.StopSignal.UnmarshalText([]byte(c.StopSignal)); err != nil {
			obstacles = append(obstacles, "lifecycle.stopSignal: "+err.Error())
		}
	}
	var err error
	if p.Unit.PreStop, err = preStop(c, words); err != nil {
		p.LeftOut = "lifecycle.preStop is left out: " + err.Error()
	}
	if c.RestartsPod {
		p.LeftOut = strings.TrimPrefix(p.LeftOut+"; the action RestartAllContainers of restartPolicyRules is left out: write a target for each container", "; ")
	}
	return p, obstacles
}

// preStop converts the preStop hook of a container.
func preStop(c kube.Container, words func([]string) []string) (*restart.PreStop, error) {
	p := &restart.PreStop{}
	switch hook := c.PreStop; {
	case hook == nil, hook.Handler == "sleep" && hook.Sleep == 0:
		return nil, nil
	case hook.Handler == "exec":
		p.Command = words(hook.Command)
	case hook.Handler == "sleep":
		p.Sleep = hook.Sleep
	default:
		port := hook.Port
		if named, isNamed := c.Target.Ports[port]; isNamed {
			port = strconv.Itoa(int(named))
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return nil, fmt.Errorf("the container has no port %q", port)
		}
		address := cmp.Or(hook.Host, c.Target.Address)
		if address == "" {
			return nil, errors.New("its request goes to an address that the container does not have yet")
		}
		host := net.JoinHostPort(address, port)
		p.URL = strings.ToLower(hook.Scheme) + "://" + host + "/" + strings.TrimPrefix(hook.Path, "/")
		for name, values := range hook.Headers {
			if p.Headers == nil {
				p.Headers = map[string]string{}
			}
			p.Headers[name] = strings.Join(values, ", ")
		}
	}
	if err := (restart.Unit{PreStop: p}).Check(); err != nil {
		return nil, err
	}
	return p, nil
}

// restartPolicy returns a container's restart policy.
func restartPolicy(c kube.Container) restart.Policy {
	policies := map[string]restart.Policy{"Always": restart.Always, "OnFailure": restart.OnFailure, "Never": restart.Never}
	return policies[string(c.RestartPolicy)]
}
