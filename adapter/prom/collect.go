package prom

import (
	"context"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range descriptions {
		out <- d
	}
	if c.config.Compatibility == probe.Kubelet {
		out <- kubeletTotalDesc
		out <- kubeletDurationDesc
	}
}

// Collect implements prometheus.Collector: it reads the engine.
func (c *Collector) Collect(out chan<- prometheus.Metric) { c.collect(context.Background(), out) }

// collect reads the engine, or only a part of it if ctx is done.
func (c *Collector) collect(ctx context.Context, out chan<- prometheus.Metric) {
	s, stats := scrape(out), c.config.Engine.Stats()
	s.gauge(buildInfoDesc, 1, c.config.Version, runtime.Version())
	s.stats(stats)
	if c.config.LogDropped != nil {
		s.counter(logDroppedDesc, float64(c.config.LogDropped()))
	}
	s.summary(c.config.Engine.Summary(ctx))
	for _, p := range c.config.Plugins() {
		s.plugin(p)
	}
	if c.config.State != nil {
		s.state(c.config.State())
	}
	omit := stats.Probes > c.config.MaxProbes
	if s.gauge(omittedDesc, number(omit)); !omit {
		c.targets(ctx, s)
	}
}

// targets sends the metrics of each target.
func (c *Collector) targets(ctx context.Context, s scrape) {
	kubelet := kubeletSeries{}
	for t := range c.config.Engine.Select(ctx, engine.Filter{}) {
		s.target(t)
		if c.config.Compatibility == probe.Kubelet {
			kubelet.add(t, c.config.Engine.SuccessDurations)
		}
	}
	s.kubelet(kubelet)
}

// scrape is one call of Collect.
type scrape chan<- prometheus.Metric

// stats sends the metrics of the engine.
func (s scrape) stats(st engine.Stats) {
	for _, a := range st.Attempts {
		labels := []string{a.Kind.String(), a.HandlerName, a.Outcome.String()}
		s.counter(attemptsDesc, float64(a.Durations.Count()), labels...)
		s.histogram(durationDesc, a.Durations, labels...)
	}
	s.histogram(latenessDesc, st.Lateness)
	s.gauge(probesDesc, float64(st.Probes))
	s.gauge(inFlightDesc, float64(st.InFlight))
	s.gauge(queuedDesc, float64(st.Queued))
	s.counter(skippedDesc, float64(st.Overrun), "overrun")
	s.counter(skippedDesc, float64(st.Late), "late")
	s.counter(skippedDesc, float64(st.Shed), "shed")
	s.counter(busyDesc, st.Busy.Seconds())
	s.counter(panicsDesc, float64(st.Panics))
	s.counter(droppedDesc, float64(st.Dropped))
	s.gauge(healthDesc, float64(st.Health.Score))
	s.gauge(isolatedDesc, number(st.Health.Isolated))
	s.counter(stallsDesc, float64(st.Health.Stalls))
	s.counter(stalledDesc, st.Health.Stalled.Seconds())
}

// summary sends the numbers of targets and probes.
func (s scrape) summary(sum engine.Summary) {
	s.gauge(targetsDesc, float64(sum.Targets))
	s.gauge(targetsStartedDesc, float64(sum.Started))
	s.gauge(targetsReadyDesc, float64(sum.Ready))
	s.gauge(targetsLiveDesc, float64(sum.Live))
	for of, n := range sum.Verdicts {
		s.gauge(verdictsDesc, float64(n), of.Kind.String(), of.Verdict.String())
	}
}

// target sends the metrics of a target and its probes.
func (s scrape) target(t engine.TargetStatus) {
	s.gauge(targetStartedDesc, number(t.Started), t.Target)
	s.gauge(targetReadyDesc, number(t.Ready), t.Target)
	s.gauge(targetLiveDesc, number(t.Live), t.Target)
	s.counter(targetRestartsDesc, float64(t.Instance.Restarts), t.Target)
	for _, p := range t.Probes {
		labels := []string{p.ID.Target, p.ID.Kind.String(), p.ID.Name}
		s.gauge(probePassingDesc, number(p.Verdict == probe.Passing), labels...)
		s.gauge(probeUndecidedDesc, number(p.Verdict == probe.Undecided), labels...)
		s.gauge(probeErrorsDesc, float64(p.Errors), labels...)
		s.counter(probeChangesDesc, float64(p.Changes), labels...)
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
	s <- m
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
