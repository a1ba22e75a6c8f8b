package kube

import (
	"cmp"
	"errors"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/probe"
)

// Set returns the probes of a pod: those of its regular containers and of its
// sidecars. Each has the rule that the API server's defaults give, and the grace
// period that the kubelet would allow when it ends the container: the probe's own,
// else the pod's (K139). An exec probe's command has its variables replaced (K76),
// and every probe without a host is for the pod's IP (K111).
//
// A pod without an IP has no address: probes over the network are then Unknown
// until Set is called again, rather than asking this machine (K112).
//
// The error names each probe that is refused, by its path in the manifest. The
// pod is not changed, and not kept.
func Set(pod *v1.Pod, h Handlers) (probe.Set, error) {
	containers, err := Containers(pod)
	if err != nil {
		return nil, err
	}
	set := probe.Set{}
	var errs []error
	for _, c := range containers {
		own, err := c.Set(h)
		maps.Copy(set, own)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return set, nil
}

// Set returns the probes of one container, as the function of that name does for
// all containers of a pod.
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
	return probe.Probe{Rule: rule, Target: c.Target, Handler: handler, HandlerName: p.Name(), Revision: p.revision()}, nil
}
