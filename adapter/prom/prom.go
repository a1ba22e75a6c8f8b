package prom

import (
	"iter"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// MaxScrapes bounds how many scrapes of a Handler are served at once. The next
// one gets status 503.
const MaxScrapes = 4

// Engine is the part of *engine.Engine that a scrape reads. It has three
// methods, since a scrape shows three things: what is, what happened, and what
// the kubelet would have measured.
type Engine interface {
	Targets() iter.Seq[engine.TargetStatus]
	Stats() engine.Stats
	SuccessDurations(id probe.ID) (engine.Histogram, bool)
}

// Config is what to show.
type Config struct {
	Engine  Engine // required
	Version string // of the program, for sonde_build_info; default "unknown"

	// Plugins returns what is to be shown of plugins. It is called by each
	// scrape. Default: there are none.
	Plugins func() []Plugin

	// Compatibility with probe.Kubelet adds the kubelet's own metrics, so that
	// dashboards made for it go on working. Default: none.
	//
	//	prober_probe_total{probe_type,result,container,pod,namespace,pod_uid}
	//	prober_probe_duration_seconds{probe_type,container,pod,namespace}
	//
	// A target's name is read as "namespace/pod/container". What a shorter name
	// lacks on the left is empty: "web" is a container, "shop/web" a pod and a
	// container. A longer one leaves its further slashes in the container. The
	// engine knows no pod_uid, so it is empty. As in the kubelet, a warning is
	// successful, attempts that could not be made are not counted, and only
	// successful attempts are timed. Probes with equal labels, such as named
	// probes of one kind, are added up.
	Compatibility probe.Compatibility
}

// Collector is a prometheus.Collector that reads an engine at each scrape. It
// may be used by any number of goroutines at once.
type Collector struct {
	engine  Engine
	plugins func() []Plugin
	version string
	kubelet bool
	desc    descriptions
}

// New returns a Collector for c.Engine.
func New(c Config) *Collector {
	version := c.Version
	if version == "" {
		version = "unknown"
	}
	plugins := c.Plugins
	if plugins == nil {
		plugins = func() []Plugin { return nil }
	}
	return &Collector{engine: c.Engine, plugins: plugins, version: version, kubelet: c.Compatibility == probe.Kubelet, desc: newDescriptions()}
}

// Handler returns a handler for /metrics with a registry of its own. It shows
// the collector's metrics and those of the process and the Go runtime. What
// cannot be collected is left out; the rest is still shown.
func (c *Collector) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: MaxScrapes,
	})
}
