package metrics

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sonde-probe/sonde/api"
	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/stats"
)

// MaxScrapes limits how many scrapes a Handler serves at once. Any more get status
// 503.
const MaxScrapes = 4

// DefaultMaxProbes is the default of Config.MaxProbes. A scrape with the series of so
// many probes has about 12 MB, and takes about half a second.
const DefaultMaxProbes = 20_000

// Engine is the subset of *engine.Engine that a scrape uses: the current states,
// the counters, and the durations for the kubelet's metrics.
type Engine interface {
	Select(ctx context.Context, f engine.Filter) iter.Seq[engine.TargetStatus]
	Summary(ctx context.Context) engine.Summary
	Stats() engine.Stats
	SuccessDurations(id probe.ID) (engine.Histogram, bool)
}

// Config configures a Collector.
type Config struct {
	Engine  Engine // required
	Version string // of the program, for sonde_build_info; default "unknown"

	// MaxProbes is up to how many probes a scrape has series of each probe and target.
	// With more it has the metrics of the engine, the plugins and all targets only, and
	// sonde_series_omitted is 1. Default DefaultMaxProbes.
	MaxProbes int

	// Labels are the names of the labels of targets that sonde_target_labels has; see
	// probe.CheckLabel. Default: there is no such metric.
	Labels []string

	// Groups returns the groups. Each scrape calls it. Default: no groups.
	Groups func() []*group.View

	// Maintenances returns which maintenances there are. Each scrape calls it. Default: none.
	Maintenances func() []api.Maintenance

	// Cluster returns what is known of the engines that share targets. Each scrape calls it. Default: the
	// metrics are left out.
	Cluster func() Cluster

	// Gateways returns how the gateways fare. Each scrape calls it. Default: no gateways.
	Gateways func() []group.GatewayStatus

	// DroppedLines returns how many lines of the output of a target's processes were dropped, and
	// whether it has any. Each scrape calls it for each target. Default: the metric is left out.
	DroppedLines func(target string) (lines uint64, isProcess bool)

	// Notifiers returns the numbers of each receiver of the notifiers. Each scrape calls it. Default:
	// there are none.
	Notifiers func() []api.Notifier

	// Plugins returns the numbers of the plugins, whose names must differ. Each scrape
	// calls it. Default: no plugins.
	Plugins func() []stats.Plugin

	// LogDropped returns how many records of the program's log were dropped. Each
	// scrape calls it. Default: the metric is left out.
	LogDropped func() uint64

	// State returns the numbers of the state file. Each scrape calls it. Default: no
	// state file.
	State func() State

	// Reload returns how the last reload of the configuration ended. Each scrape calls it.
	// Default: the metrics are left out.
	Reload func() api.Reload

	// Beats has the beats of targets. Each scrape reads it. Default: the metrics are left out.
	Beats *beatprobe.Registry

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
type Collector struct {
	config Config
	labels *prometheus.Desc // of sonde_target_labels; nil for none
}

// New returns a Collector for c.Engine.
func New(c Config) *Collector {
	if c.Plugins == nil {
		c.Plugins = func() []stats.Plugin { return nil }
	}
	c.Version = cmp.Or(c.Version, "unknown")
	c.MaxProbes = cmp.Or(c.MaxProbes, DefaultMaxProbes)
	collector := &Collector{config: c}
	if len(c.Labels) > 0 {
		collector.labels = prometheus.NewDesc("sonde_target_labels", "A metric with a constant '1' value labeled by the labels of the target.", append([]string{"target"}, c.Labels...), nil)
	}
	return collector
}

// Handler returns a handler for /metrics with registries of its own: the collector's
// metrics and those of the process and the Go runtime. A metric that cannot be
// collected is left out. When a request is cancelled the scrape ends, and its connection
// is closed.
func (c *Collector) Handler() http.Handler {
	scrapes := make(chan struct{}, MaxScrapes)
	runtime, process := collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case scrapes <- struct{}{}:
			defer func() { <-scrapes }()
		default:
			http.Error(w, fmt.Sprintf("too many scrapes: the limit is %d at once", MaxScrapes), http.StatusServiceUnavailable)
			return
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(requested{c, r.Context()}, runtime, process)
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // series may be missing: the response must not look complete
		}
	})
}

// requested is a Collector for one request. It stops to read the engine when ctx is done.
type requested struct {
	*Collector
	ctx context.Context
}

// Collect implements prometheus.Collector.
func (r requested) Collect(out chan<- prometheus.Metric) { r.collect(r.ctx, out) }
