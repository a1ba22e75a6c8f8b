package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// The kubelet's metrics.
var (
	kubeletTotalDesc = prometheus.NewDesc("prober_probe_total",
		"Cumulative number of a liveness, readiness or startup probe for a container by result.",
		[]string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}, nil)
	kubeletDurationDesc = prometheus.NewDesc("prober_probe_duration_seconds",
		"Duration in seconds for a probe response.",
		[]string{"probe_type", "container", "pod", "namespace"}, nil)
)

// kubeletLabels are the labels that the kubelet's two metrics share.
type kubeletLabels struct {
	probeType, container, pod, namespace string
}

// kubeletCounts are the values of the kubelet's metrics.
type kubeletCounts struct {
	successful, failed uint64
	duration           engine.Histogram // of the successful attempts
}

// kubeletSeries adds up the probes with equal labels: two series with equal labels would invalidate the scrape.
type kubeletSeries map[kubeletLabels]kubeletCounts

func (k kubeletSeries) add(t engine.TargetStatus, durations func(probe.ID) (engine.Histogram, bool)) {
	namespace, pod, container := split(t.Target)
	for _, p := range t.Probes {
		labels := kubeletLabels{probeType: probeType(p.ID.Kind), container: container, pod: pod, namespace: namespace}
		c := k[labels]
		c.successful += p.Attempts[probe.Success] + p.Attempts[probe.Warning]
		c.failed += p.Attempts[probe.Failure]
		if h, ok := durations(p.ID); ok {
			c.duration = sum(c.duration, h)
		}
		k[labels] = c
	}
}

// kubelet sends the kubelet's metrics. As in the kubelet, a series exists from its first attempt on.
func (s scrape) kubelet(series kubeletSeries) {
	for l, c := range series {
		results := []struct {
			name  string
			count uint64
		}{{"successful", c.successful}, {"failed", c.failed}}
		for _, r := range results {
			if r.count > 0 {
				s.counter(kubeletTotalDesc, float64(r.count), l.probeType, r.name, l.container, l.pod, l.namespace, "")
			}
		}
		if c.duration.Count() > 0 {
			s.histogram(kubeletDurationDesc, c.duration, l.probeType, l.container, l.pod, l.namespace)
		}
	}
}

// split splits a target's name "namespace/pod/container". A shorter name has no namespace, or neither namespace nor pod.
func split(name string) (namespace, pod, container string) {
	parts := strings.SplitN(name, "/", 3)
	parts = append(make([]string, 3-len(parts)), parts...)
	return parts[0], parts[1], parts[2]
}

// probeType returns the value of the kubelet's label for a kind, such as "Startup".
func probeType(k probe.Kind) string {
	name := k.String()
	return strings.ToUpper(name[:1]) + name[1:]
}

// sum adds two histograms with equal bounds. It modifies neither.
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
