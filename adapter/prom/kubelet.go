package prom

import (
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// kubeletLabels are the labels that the kubelet's two metrics share.
type kubeletLabels struct {
	probeType, container, pod, namespace string
}

// kubeletCounts is what the kubelet would have counted.
type kubeletCounts struct {
	successful, failed uint64
	took               engine.Histogram // of the successful ones
}

// kubeletSeries adds probes up by their labels, since equal labels in two
// series would spoil the whole scrape.
type kubeletSeries map[kubeletLabels]kubeletCounts

func (k kubeletSeries) add(t engine.TargetStatus, times func(probe.ID) (engine.Histogram, bool)) {
	namespace, pod, container := split(t.Target)
	for _, p := range t.Probes {
		labels := kubeletLabels{probeType: probeType(p.ID.Kind), container: container, pod: pod, namespace: namespace}
		c := k[labels]
		c.successful += p.Attempts[probe.Success] + p.Attempts[probe.Warning]
		c.failed += p.Attempts[probe.Failure]
		if h, ok := times(p.ID); ok {
			c.took = sum(c.took, h)
		}
		k[labels] = c
	}
}

// kubelet sends what has been counted. As in the kubelet, a series begins with
// its first attempt.
func (s scrape) kubelet(series kubeletSeries) {
	for l, c := range series {
		results := []struct {
			name  string
			count uint64
		}{{"successful", c.successful}, {"failed", c.failed}}
		for _, r := range results {
			if r.count > 0 {
				s.counter(s.desc.kubeletTotal, float64(r.count), l.probeType, r.name, l.container, l.pod, l.namespace, "")
			}
		}
		if c.took.Count() > 0 {
			s.histogram(s.desc.kubeletDuration, c.took, l.probeType, l.container, l.pod, l.namespace)
		}
	}
}

// split reads a target's name as "namespace/pod/container", from the right when
// it is shorter.
func split(name string) (namespace, pod, container string) {
	parts := strings.SplitN(name, "/", 3)
	switch len(parts) {
	case 3:
		return parts[0], parts[1], parts[2]
	case 2:
		return "", parts[0], parts[1]
	}
	return "", "", name
}

// probeType returns the kind as the kubelet's label has it.
func probeType(k probe.Kind) string {
	switch k {
	case probe.Startup:
		return "Startup"
	case probe.Readiness:
		return "Readiness"
	case probe.Liveness:
		return "Liveness"
	}
	return k.String()
}

// sum adds two histograms with the same bounds. It writes neither.
func sum(a, b engine.Histogram) engine.Histogram {
	if len(a.Counts) == 0 {
		return b
	}
	a.Counts = slices.Clone(a.Counts)
	for i := range min(len(a.Counts), len(b.Counts)) {
		a.Counts[i] += b.Counts[i]
	}
	a.Sum += b.Sum
	return a
}
