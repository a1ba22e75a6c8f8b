package kube

import (
	"cmp"
	"errors"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/probe"
)

// Set returns the probes of a pod's regular containers and sidecars. The rules have the API server's defaults, and the
// grace period with which the kubelet kills the container: the probe's, else the pod's (K139 in docs/kubelet.md). In the
// command of an exec probe, $(NAME) is replaced (K76). A probe without a host uses the pod's IP (K111).
//
// If the pod has no IP, network probes are Unknown until Set is called again with one; they do not probe the local machine
// (K112).
//
// The error names each rejected probe by its path in the manifest. The pod is neither changed nor retained.
func Set(pod *v1.Pod, h Handlers) (probe.Set, error) { return setOf(pod, nameOf(pod), h) }

// setOf returns the probes of a pod whose targets' names begin with name.
func setOf(pod *v1.Pod, name podName, h Handlers) (probe.Set, error) {
	containers, err := Containers(pod)
	if err != nil {
		return nil, err
	}
	set := probe.Set{}
	var errs []error
	for _, c := range containers {
		c.Target.Name = name.target(c.Name)
		own, err := c.Set(h)
		maps.Copy(set, own)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return set, nil
}

// Set returns the probes of one container, like the function Set.
func (c Container) Set(h Handlers) (probe.Set, error) {
	set := probe.Set{}
	var errs []error
	for _, p := range c.Probes {
		made, err := makeProbe(c, p, h)
		if err != nil {
			errs = append(errs, fmt.Errorf("container %q: %s: %w", c.Name, p.Field, err))
			continue
		}
		set[probe.ID{Target: c.Target.Name, Kind: p.Rule.Kind}] = made
	}
	return set, errors.Join(errs...)
}

func makeProbe(c Container, p Probe, h Handlers) (probe.Probe, error) {
	handler, err := h.Make(p.Action)
	if err != nil {
		return probe.Probe{}, err
	}
	rule := p.Rule
	if rule.Kind != probe.Readiness {
		rule.TerminationGracePeriod = cmp.Or(rule.TerminationGracePeriod, c.TerminationGracePeriod)
	}
	return probe.Probe{Rule: rule, Target: c.Target, Handler: handler, HandlerName: p.Handler, Revision: p.revision()}, nil
}
