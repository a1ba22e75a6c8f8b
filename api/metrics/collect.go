package metrics

import (
	"context"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range descriptions {
		out <- d
	}
	if c.labels != nil {
		out <- c.labels
	}
	if c.config.Compatibility == probe.Kubelet {
		out <- kubeletTotalDesc
		out <- kubeletDurationDesc
	}
}

// Collect implements prometheus.Collector: it reads the engine.
func (c *collector) Collect(out chan<- prometheus.Metric) { c.collect(context.Background(), out) }

// collect reads the engine, or only a part of it if ctx is done.
func (c *collector) collect(ctx context.Context, out chan<- prometheus.Metric) {
	s, stats := scrape(out), c.config.Engine.Stats()
	s.gauge(buildInfoDesc, 1, c.config.Version, runtime.Version())
	s.stats(stats)
	if c.config.LogDropped != nil {
		s.counter(logDroppedDesc, float64(c.config.LogDropped()))
	}
	s.summary(c.config.Engine.Summary(ctx))
	if c.config.Plugins != nil {
		for _, p := range c.config.Plugins() {
			s.plugin(p)
		}
	}
	if c.config.State != nil {
		send(s, stateMetrics, c.config.State())
	}
	s.shown(&c.config.Shown)
	omit := stats.Probes > c.config.MaxProbes
	if s.gauge(omittedDesc, number(omit)); !omit {
		c.targets(ctx, s)
	}
}

// shown sends the metrics of everything that the API shows in addition to the engine.
func (s scrape) shown(c *api.Config) {
	if c.Groups != nil {
		s.groups(c.Groups.Views())
	}
	if c.Gateways != nil {
		for _, g := range c.Gateways() {
			send(s, gatewayMetrics, g, g.Gateway, g.Output)
		}
	}
	if c.Runtimes != nil {
		for _, r := range c.Runtimes() {
			send(s, runtimeMetrics, r, r.Name)
		}
	}
	if c.Discoveries != nil {
		for _, d := range c.Discoveries() {
			send(s, discoveryMetrics, d, d.Name)
		}
	}
	if c.Notifiers != nil {
		for _, n := range c.Notifiers() {
			send(s, notifyMetrics, n, n.Name, n.Output, n.Receiver)
		}
	}
	if c.Maintenances != nil {
		for _, m := range c.Maintenances() {
			send(s, maintenanceMetrics, m, m.Name)
		}
	}
	if c.NameServers != nil {
		s.gauge(silentServersDesc, float64(len(c.NameServers())))
	}
	if c.Cluster != nil {
		known := c.Cluster()
		send(s, clusterMetrics, &known)
		if known.Config != nil {
			send(s, clusterRevisionMetrics, &known)
		}
	}
	if c.LastReload != nil {
		send(s, reloadMetrics, c.LastReload())
	}
	if c.Beats != nil {
		s.beats(c.Beats.Stats())
	}
}

// targets sends the metrics of each target.
func (c *collector) targets(ctx context.Context, s scrape) {
	kubelet := kubeletSeries{}
	for t := range c.config.Engine.Select(ctx, engine.Filter{}) {
		s.target(t)
		c.targetLabels(s, t)
		if of := c.config.Shown.Process; of != nil {
			if p, isProcess := of(t.Target); isProcess {
				s.counter(droppedLinesDesc, float64(p.DroppedLines), t.Target)
			}
		}
		c.lastBeat(s, t.Target)
		if c.config.Compatibility == probe.Kubelet {
			kubelet.add(t, c.config.Engine.SuccessDurations)
		}
	}
	s.kubelet(kubelet)
}

// targetLabels sends the configured labels of a target, if it has any of them.
func (c *collector) targetLabels(s scrape, t engine.TargetStatus) {
	if c.labels == nil {
		return
	}
	values, some := []string{t.Target}, false
	for _, name := range c.config.Labels {
		values, some = append(values, t.Labels[name]), some || t.Labels[name] != ""
	}
	if some {
		s.gauge(c.labels, 1, values...)
	}
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
	s.counter(skippedDesc, float64(st.Overrun), "overrun")
	s.counter(skippedDesc, float64(st.Late), "late")
	s.counter(skippedDesc, float64(st.Shed), "shed")
	send(s, engineMetrics, st)
}

// summary sends the numbers of targets and probes.
func (s scrape) summary(sum engine.Summary) {
	send(s, summaryMetrics, sum)
	for state, n := range sum.States {
		s.gauge(statesDesc, float64(n), probe.TargetState(state).String())
	}
	for of, n := range sum.Verdicts {
		s.gauge(verdictsDesc, float64(n), of.Kind.String(), of.Verdict.String())
	}
}

// groups sends the metrics of groups. sonde_group_ready is omitted until it is known whether the group is ready.
func (s scrape) groups(views []*group.View) {
	for _, v := range views {
		if v.Last != probe.GatewayUndecided {
			s.gauge(groupReadyDesc, number(v.Last == probe.GatewayReady), v.Group)
		}
		for state, members := range v.Counts {
			s.gauge(groupMembersDesc, float64(members), v.Group, probe.GatewayState(state).String())
		}
		s.gauge(groupRotationDesc, float64(v.InRotation), v.Group)
		s.gauge(groupPanicDesc, number(v.Panicking), v.Group)
		s.gauge(groupFrozenDesc, number(v.Frozen), v.Group)
		if v.Rule.HoldRestarts {
			s.gauge(groupHeldDesc, float64(v.RestartsWithheld), v.Group)
		}
	}
}

// target sends the metrics of a target and its probes.
func (s scrape) target(t engine.TargetStatus) {
	send(s, targetMetrics, &t, t.Target)
	for i := range t.Probes {
		p := &t.Probes[i]
		send(s, probeMetrics, p, p.ID.Target, p.ID.Kind.String(), p.ID.Name)
		if !p.ResultAt.IsZero() {
			s.lastAttempt(p)
		}
	}
}

// lastAttempt sends the metrics of a probe's latest attempt.
func (s scrape) lastAttempt(p *engine.Status) {
	labels, res := []string{p.ID.Target, p.ID.Kind.String(), p.ID.Name}, &p.Result
	s.gauge(lastDurationDesc, res.Took.Seconds(), labels...)
	s.gauge(lastResultDesc, 1, append(labels[:3:3], res.Outcome.String(), string(res.Reason))...)
	if f := &p.Fault; f.Exists() {
		outcome := f.Outcome.String()
		s.gauge(lastFaultDesc, unixTime(f.At), append(labels[:3:3], outcome, string(f.Reason))...)
		if f.Of > 0 {
			s.gauge(faultRatioDesc, float64(f.Times)/float64(f.Of), append(labels[:3:3], outcome)...)
		}
	}
	if res.HTTPStatus != 0 {
		s.gauge(httpStatusDesc, float64(res.HTTPStatus), labels...)
	}
	if res.CertificateExpiry != 0 {
		s.gauge(certExpiryDesc, float64(res.CertificateExpiry), labels...)
	}
}

// send sends metrics whose values are read from one value.
func send[T any](s scrape, metrics []metric[T], from T, labels ...string) {
	for _, m := range metrics {
		s.send(prometheus.NewConstMetric(m.desc, m.kind, m.value(from), labels...))
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

// send sends a metric, or the error of creating it: a label that is not UTF-8 must not crash the program.
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
