package prom

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.desc.all() {
		out <- d
	}
	if c.kubelet {
		out <- c.desc.kubeletTotal
		out <- c.desc.kubeletDuration
	}
}

// Collect implements prometheus.Collector: it reads the engine.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	s := scrape{desc: &c.desc, out: out}
	s.gauge(s.desc.buildInfo, 1, c.version, runtime.Version())
	s.stats(c.engine.Stats())
	kubelet := kubeletSeries{}
	for t := range c.engine.Targets() {
		s.target(t)
		if c.kubelet {
			kubelet.add(t, c.engine.SuccessDurations)
		}
	}
	for _, p := range c.plugins() {
		s.plugin(p)
	}
	s.kubelet(kubelet)
}

// scrape is one call of Collect.
type scrape struct {
	desc *descriptions
	out  chan<- prometheus.Metric
}

// stats sends the metrics of the engine.
func (s scrape) stats(st engine.Stats) {
	for _, a := range st.Attempts {
		labels := []string{a.Kind.String(), a.HandlerName, a.Outcome.String()}
		s.counter(s.desc.attempts, float64(a.Durations.Count()), labels...)
		s.histogram(s.desc.duration, a.Durations, labels...)
	}
	s.histogram(s.desc.lateness, st.Lateness)
	s.gauge(s.desc.probes, float64(st.Probes))
	s.gauge(s.desc.inFlight, float64(st.InFlight))
	s.gauge(s.desc.queued, float64(st.Queued))
	s.counter(s.desc.skipped, float64(st.Overrun), "overrun")
	s.counter(s.desc.skipped, float64(st.Late), "late")
	s.counter(s.desc.skipped, float64(st.Shed), "shed")
	s.counter(s.desc.busy, st.Busy.Seconds())
	s.counter(s.desc.panics, float64(st.Panics))
	s.counter(s.desc.dropped, float64(st.Dropped))
}

// target sends the metrics of a target and its probes.
func (s scrape) target(t engine.TargetStatus) {
	s.gauge(s.desc.started, number(t.Started), t.Target)
	s.gauge(s.desc.ready, number(t.Ready), t.Target)
	s.gauge(s.desc.live, number(t.Live), t.Target)
	s.counter(s.desc.restarts, float64(t.Instance.Restarts), t.Target)
	for _, p := range t.Probes {
		labels := []string{p.ID.Target, p.ID.Kind.String(), p.ID.Name}
		s.gauge(s.desc.passing, number(p.Verdict == probe.Passing), labels...)
		s.gauge(s.desc.undecided, number(p.Verdict == probe.Undecided), labels...)
		s.gauge(s.desc.errors, float64(p.Errors), labels...)
		s.counter(s.desc.changes, float64(p.Changes), labels...)
	}
}

func (s scrape) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.send(prometheus.NewConstMetric(d, prometheus.GaugeValue, v, labels...))
}

func (s scrape) counter(d *prometheus.Desc, v float64, labels ...string) {
	s.send(prometheus.NewConstMetric(d, prometheus.CounterValue, v, labels...))
}

// histogram sends h with cumulative buckets, as Prometheus defines them.
func (s scrape) histogram(d *prometheus.Desc, h engine.Histogram, labels ...string) {
	buckets := make(map[float64]uint64, len(h.Bounds))
	var cumulative uint64
	for i, bound := range h.Bounds {
		if i < len(h.Counts) {
			cumulative += h.Counts[i]
		}
		buckets[bound.Seconds()] = cumulative
	}
	s.send(prometheus.NewConstHistogram(d, h.Count(), h.Sum.Seconds(), buckets, labels...))
}

// send sends a metric, or the error of creating it: a label that is not UTF-8 must
// not end the program.
func (s scrape) send(m prometheus.Metric, err error) {
	if err != nil {
		m = prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
	}
	s.out <- m
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
