package oracle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/sonde-probe/sonde/probe"
)

// series are the values of the kubelet's two metrics on a side: the number of attempts
// by metric and labels. Durations are not compared.
type series map[string]uint64

// gather reads a side's metrics without the label pod_uid, which an engine does not have,
// and without series that have no attempts (K178, K179).
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

// attempts returns the number of attempts of a series, or 0 for another metric.
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

// leastBound is the lowest bucket of the kubelet's histogram, in seconds (K179). Sonde also has lower buckets.
const leastBound = 0.005

// compareMetrics compares the metrics of two sides at the end of a script.
func compareMetrics(s *Script, kubelet, ours series) []Difference {
	var all []Difference
	for _, c := range s.Containers {
		for _, k := range c.Checks {
			at := probeKey{s.Name, c.Name, k.Kind}
			x, y := kubelet.of(at), ours.of(at)
			if s.keepsSeries(&c, k) && x != y {
				all = append(all, Difference{Script: s, Container: c.Name, Kind: k.Kind, Step: len(s.Steps) - 1, Field: "metrics", Kubelet: x, Sonde: y})
			}
		}
	}
	return all
}

// of returns the series of a probe.
func (all series) of(at probeKey) string {
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

// keepsSeries reports whether a probe has a worker, and so its series (K180), at the end of the script, and whether the script
// determines the number of attempts.
func (s *Script) keepsSeries(c *Container, k Check) bool {
	last := len(s.Steps) - 1
	l := s.instanceAt(c, last)
	judges := k.Kind != probe.Readiness
	return s.exists(last) && k.Via != ViaTCP && l.phase != probe.Gone && !(judges && s.isLeft())
}
