package oracle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/sonde-probe/sonde/probe"
)

// series are the kubelet's two metrics as a side shows them to Prometheus: by
// metric and labels, in how many attempts. It is not compared how long they took.
type series map[string]uint64

// gather reads a side's metrics. The label pod_uid is left out, since an engine
// does not know it, and so are series without an attempt (K178, K179).
func gather(from prometheus.Gatherer) (series, error) {
	families, err := from.Gather()
	if err != nil {
		return nil, err
	}
	all := series{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := attempts(f, m); n > 0 {
				all[seriesName(f, m)] = n
			}
		}
	}
	return all, nil
}

// attempts is how many a series has counted, or 0 for one of another metric.
func attempts(f *dto.MetricFamily, m *dto.Metric) uint64 {
	switch f.GetName() {
	case "prober_probe_total":
		return uint64(m.GetCounter().GetValue())
	case "prober_probe_duration_seconds":
		return m.GetHistogram().GetSampleCount()
	}
	return 0
}

func seriesName(f *dto.MetricFamily, m *dto.Metric) string {
	var labels []string
	for _, l := range m.GetLabel() {
		if l.GetName() != "pod_uid" {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
	}
	var bounds []float64
	for _, b := range m.GetHistogram().GetBucket() {
		if b.GetUpperBound() >= leastBound {
			bounds = append(bounds, b.GetUpperBound())
		}
	}
	return fmt.Sprint(f.GetName(), " ", f.GetType(), labels, bounds)
}

// leastBound is the least bound of the kubelet's histogram, in seconds (K179).
// Ours has bounds below it too, since many attempts are quicker.
const leastBound = 0.005

// compareMetrics compares what two sides show of a probe when its script has
// ended.
func compareMetrics(s *Script, kubelet, ours series) []Difference {
	var all []Difference
	for _, c := range s.Containers {
		for _, k := range c.Checks {
			at := spot{s.Name, c.Name, k.Kind}
			x, y := kubelet.of(at), ours.of(at)
			if s.keepsSeries(&c, k) && x != y {
				all = append(all, Difference{s, c.Name, k.Kind, len(s.Steps) - 1, "metrics", x, y})
			}
		}
	}
	return all
}

// of returns the series of a probe.
func (all series) of(at spot) string {
	var found []string
	for name, n := range all {
		labels := []string{"container=" + at.container, "pod=" + at.script, "probe_type=" + kubeKind(at.kind)}
		if !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(name, l+" ") && !strings.Contains(name, l+"]") }) {
			found = append(found, fmt.Sprintf("%s: %d", name, n))
		}
	}
	slices.Sort(found)
	return strings.Join(found, "\n           ")
}

// keepsSeries reports whether a probe still has a worker when the script ends, so
// that its series are there (K180), and whether the script knows how often it was
// attempted.
func (s *Script) keepsSeries(c *Container, k Check) bool {
	last := len(s.Steps) - 1
	l := s.lifeAt(c, last)
	judges := k.Kind != probe.Readiness
	return s.exists(last) && k.Via != ViaTCP && l.phase != probe.Gone && !(judges && s.isLeft())
}
