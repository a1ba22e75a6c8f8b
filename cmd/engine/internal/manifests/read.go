package manifests

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process"
)

// reader converts pod manifests to targets that run as processes.
type reader struct {
	entrypoints entrypoints
	handlers    kube.Handlers
	log         *slog.Logger
}

// read returns the containers of a file that can run as processes or be probed. It logs why other containers cannot, and which
// fields are not supported. If the file has errors, it returns them together with the previous targets.
func (r *reader) read(name string, text []byte, before []target) ([]target, []error) {
	all, errs := kube.Read(name, text)
	var targets []target
	for _, m := range all {
		found, err := r.manifest(m)
		if err != nil {
			for _, err := range config.Separate(err) {
				errs = append(errs, fmt.Errorf("%s: %s: %w", m.Position, m, err))
			}
		}
		targets = append(targets, found...)
	}
	if len(errs) > 0 {
		return before, errs
	}
	return targets, nil
}

func (r *reader) manifest(m kube.Manifest) ([]target, error) {
	if m.Kind != "Pod" || m.Pod == nil {
		return nil, errors.New("only a Pod can run as processes; use sonde import for other kinds")
	}
	m.Pod.Status.PodIP = loopback
	if name, err := os.Hostname(); err == nil {
		m.Pod.Spec.NodeName = name
	}
	containers, err := r.entrypoints.containers(m)
	if err != nil {
		return nil, err
	}
	if len(m.Ignored) > 0 {
		r.log.Warn("unsupported fields ignored", "pod", m.Namespace+"/"+m.Name, "fields", listFields(m.Ignored))
	}
	readiness, scheduling := gates(m)
	if readiness != "" {
		r.log.Warn("readiness gates do not count, probe what sets them", "pod", m.Namespace+"/"+m.Name, "gates", readiness)
	}
	if scheduling != "" {
		r.log.Warn("scheduling gates do not count, the pod is started", "pod", m.Namespace+"/"+m.Name, "gates", scheduling)
	}
	var targets []target
	var gone []string // rejected sidecars: no container waits for them
	for _, c := range containers {
		c.StartAfter = slices.DeleteFunc(c.StartAfter, func(target string) bool { return slices.Contains(gone, target) })
		t, err := r.container(c)
		if err != nil {
			r.log.Error("container rejected, neither run nor probed", "target", c.Target.Name, "error", err)
			if c.Sidecar {
				gone = append(gone, c.Target.Name)
			}
			continue
		}
		if left := m.IgnoredOf[c.Name]; len(left) > 0 {
			r.log.Warn("unsupported fields ignored", "target", c.Target.Name, "fields", listFields(left))
		}
		if c.LeftOut != "" {
			r.log.Warn("part of a container is left out", "target", c.Target.Name, "detail", c.LeftOut)
		}
		if c.Argv == nil {
			r.log.Error("container cannot run as a process, it is only probed", "target", c.Target.Name, "error", c.Reason)
		}
		targets = append(targets, t)
	}
	stopSidecars(targets)
	return targets, nil
}

// stopSidecars makes the sidecars of a pod stop after the last of its regular containers, in the reverse order of their starts.
func stopSidecars(targets []target) {
	var after []string
	for i := len(targets) - 1; i >= 0; i-- { // sidecars come first
		t := &targets[i]
		unit, runs := t.target.Settings.(restart.Unit)
		if !runs || t.container.Init {
			continue
		}
		if t.container.Sidecar && len(after) > 0 {
			unit.StopAfter = slices.Clone(after)
			t.target.Settings = unit
		}
		if !t.container.Sidecar || len(after) > 0 {
			after = append(after, t.container.Target.Name)
		}
	}
}

// container converts a container to a target. A container that cannot run as a process is only probed; if it cannot be probed
// either, container returns an error.
func (r *reader) container(c container) (target, error) {
	if c.Argv == nil {
		// A command on this machine would not probe the container.
		c.Probes = slices.DeleteFunc(c.Probes, func(p kube.Probe) bool { return p.Handler == "exec" })
		if len(c.Probes) == 0 {
			return target{}, errors.New(c.Reason)
		}
	}
	for _, p := range c.Probes {
		if err := checkProbe(r.handlers, p, c.Target); err != nil {
			return target{}, fmt.Errorf("%s: %w", p.Field, err)
		}
	}
	probes, err := c.Set(r.handlers)
	if err != nil {
		return target{}, err
	}
	t := target{container: c.Container, probes: probes}
	if c.Argv == nil {
		return t, nil
	}
	p := process.Config{Command: c.Argv, Env: c.Target.Env, Dir: c.Target.Dir, User: c.Target.User}
	if err := p.Check(); err != nil {
		return target{}, err
	}
	t.target = config.Target{Driver: p, StartAfter: c.StartAfter, Settings: c.Unit}
	return t, nil
}
