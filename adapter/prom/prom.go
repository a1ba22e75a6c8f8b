package prom

import (
	"cmp"
	"iter"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// MaxScrapes limits how many scrapes a Handler serves at once. Any more get status
// 503.
const MaxScrapes = 4

// Engine is the subset of *engine.Engine that a scrape uses: the current states,
// the counters, and the durations for the kubelet's metrics.
type Engine interface {
	Targets() iter.Seq[engine.TargetStatus]
	Stats() engine.Stats
	SuccessDurations(id probe.ID) (engine.Histogram, bool)
}

// Config configures a Collector.
type Config struct {
	Engine  Engine // required
	Version string // of the program, for sonde_build_info; default "unknown"

	// Plugins returns the values of the plugins' metrics. Each scrape calls it.
	// Default: no plugins.
	Plugins func() []Plugin

	// Compatibility, when it is probe.Kubelet, adds the kubelet's own metrics for
	// existing dashboards and alerts. Default: without them.
	//
	//	prober_probe_total{probe_type,result,container,pod,namespace,pod_uid}
	//	prober_probe_duration_seconds{probe_type,container,pod,namespace}
	//
	// The labels come from a target's name "namespace/pod/container". A shorter
	// name has empty labels: "web" is a container, "shop/web" a pod and a container.
	// With more slashes the rest is the container. The label pod_uid is always
	// empty. As in the kubelet, a warning counts as successful, errors are not
	// counted, and only successful attempts are timed. Probes with equal labels,
	// such as named probes of one kind, are summed up.
	Compatibility probe.Compatibility
}

// Collector is a prometheus.Collector that reads an engine at each scrape. It is
// safe for concurrent use by multiple goroutines.
type Collector struct{ config Config }

// New returns a Collector for c.Engine.
func New(c Config) *Collector {
	if c.Plugins == nil {
		c.Plugins = func() []Plugin { return nil }
	}
	c.Version = cmp.Or(c.Version, "unknown")
	return &Collector{c}
}

// Handler returns a handler for /metrics with a registry of its own: the collector's
// metrics and those of the process and the Go runtime. A metric that cannot be
// collected is left out.
func (c *Collector) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: MaxScrapes,
	})
}
