package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/sonde-probe/sonde/adapter/kube"
	"github.com/sonde-probe/sonde/adapter/restart/process"
	"github.com/sonde-probe/sonde/config"
)

// podReader turns pod manifests into targets that are run as processes.
type podReader struct {
	entrypoints entrypoints
	handlers    kube.Handlers
	log         *slog.Logger
}

// read returns the containers of a file that can be run; it logs why others cannot,
// and what is not carried over. With errors nothing of the file can be used, and
// what was there before is returned.
func (r *podReader) read(name string, text []byte, before []podTarget) ([]podTarget, []error) {
	manifests, errs := kube.Read(name, text)
	var targets []podTarget
	for _, m := range manifests {
		found, err := r.manifest(m)
		if err != nil {
			for _, err := range apart(err) {
				errs = append(errs, fmt.Errorf("%s: %s: %w", m.Place, m, err))
			}
		}
		targets = append(targets, found...)
	}
	if len(errs) > 0 {
		return before, errs
	}
	return targets, nil
}

// loopback is where the containers of a pod find each other, and so do probes.
const loopback = "127.0.0.1"

func (r *podReader) manifest(m kube.Manifest) ([]podTarget, error) {
	if m.Kind != "Pod" || m.Pod == nil {
		return nil, errors.New("only a Pod can be run; sonde import makes a configuration of others")
	}
	m.Pod.Status.PodIP = loopback
	containers, err := m.Containers()
	if err != nil {
		return nil, err
	}
	if len(m.Left) > 0 {
		r.log.Warn("not carried over", "pod", m.Namespace+"/"+m.Name, "fields", leftOut(m.Left))
	}
	var targets []podTarget
	for _, c := range containers {
		t, err := r.container(c)
		if err != nil {
			r.log.Error("container refused", "target", c.Target.Name, "why", err)
			continue
		}
		if left := m.LeftOf[c.Name]; len(left) > 0 {
			r.log.Warn("not carried over", "target", c.Target.Name, "fields", leftOut(left))
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// container returns a container as a target, or why it cannot be run.
func (r *podReader) container(c kube.Container) (podTarget, error) {
	words, err := r.entrypoints.words(c)
	if err != nil {
		return podTarget{}, err
	}
	if len(c.Obstacles) > 0 {
		return podTarget{}, errors.New(strings.Join(c.Obstacles, "; "))
	}
	for _, p := range c.Probes {
		if p.GRPC != nil && r.handlers.GRPC == nil {
			return podTarget{}, fmt.Errorf("%s: it needs the plugin for grpc (--grpc-plugin FILE)", p.Field)
		}
		if err := usable(r.handlers, p, c.Target); err != nil {
			return podTarget{}, fmt.Errorf("%s: %w", p.Field, err)
		}
	}
	probes, err := c.Set(r.handlers)
	if err != nil {
		return podTarget{}, err
	}
	p := &config.Process{Command: words, Env: c.Target.Env, Dir: c.Target.Dir, User: c.Target.User}
	if _, err := process.New(process.Config{Target: c.Target.Name, Command: p.Command, Env: p.Env, Dir: p.Dir, User: p.User}); err != nil {
		return podTarget{}, err
	}
	return podTarget{
		name:      c.Target.Name,
		container: c,
		probes:    probes,
		target: config.Target{
			Process: p, RestartPolicy: policyOf(c), TerminationGracePeriod: c.TerminationGracePeriod, BackOff: config.DefaultBackOff(),
		},
	}, nil
}
