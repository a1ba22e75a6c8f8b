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
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/stats"
)

// maxScrapes limits the number of scrapes that a Handler serves at once. Others get status 503.
const maxScrapes = 4

// DefaultMaxProbes is the default of Config.MaxProbes. A scrape with the series of that many probes is about 12 MB, and
// takes about half a second.
const DefaultMaxProbes = 20_000

// engineReader is the subset of *engine.Engine that a scrape uses: the current states,
// the counters, and the durations for the kubelet's metrics.
type engineReader interface {
	Select(ctx context.Context, f engine.Filter) iter.Seq[engine.TargetStatus]
	Summary(ctx context.Context) engine.Summary
	Stats() engine.Stats
	SuccessDurations(id probe.ID) (engine.Histogram, bool)
}

// Config configures the metrics. Each scrape calls its functions. Metrics of unset fields are omitted.
type Config struct {
	Engine  engineReader // required; an *engine.Engine
	Version string       // of the program, for sonde_build_info; default "unknown"

	// MaxProbes is the maximum number of probes for which a scrape has the series of each probe and target. With more probes
	// it has only the metrics of the engine, the plugins and the totals, and sonde_series_omitted is 1. Default
	// DefaultMaxProbes.
	MaxProbes int

	// Labels are the names of the target labels in sonde_target_labels; see probe.CheckLabel. Default: the metric is
	// omitted.
	Labels []string

	// Shown is the configuration of the API. There are metrics of its Groups, Gateways, Runtimes, Discoveries, Notifiers,
	// Maintenances, NameServers, Cluster, Process, LastReload and Beats.
	Shown api.Config

	Plugins    func() []stats.Plugin // returns the plugins, whose names must be unique
	LogDropped func() uint64         // returns how many records of the program's log were dropped
	State      func() State          // returns the state of the state file

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

// collector is a prometheus.Collector that reads an engine at each scrape.
type collector struct {
	config Config
	labels *prometheus.Desc // of sonde_target_labels; nil if it is omitted
}

// New returns a Collector that reads an engine at each scrape. It is safe for concurrent use by multiple goroutines.
func New(c Config) prometheus.Collector { return newCollector(c) }

func newCollector(c Config) *collector {
	c.Version = cmp.Or(c.Version, "unknown")
	c.MaxProbes = cmp.Or(c.MaxProbes, DefaultMaxProbes)
	made := &collector{config: c}
	if len(c.Labels) > 0 {
		made.labels = prometheus.NewDesc("sonde_target_labels", "A metric with a constant '1' value labeled by the labels of the target.", append([]string{"target"}, c.Labels...), nil)
	}
	return made
}

// Handler returns a handler for /metrics with its own registries: the metrics of New and those of the process and the Go
// runtime. A metric that cannot be collected is omitted. When a request is canceled, the scrape stops and its connection
// is closed.
func Handler(c Config) http.Handler {
	own := newCollector(c)
	scrapes := make(chan struct{}, maxScrapes)
	runtime, process := collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case scrapes <- struct{}{}:
			defer func() { <-scrapes }()
		default:
			http.Error(w, fmt.Sprintf("too many scrapes: the limit is %d at once", maxScrapes), http.StatusServiceUnavailable)
			return
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(requested{own, r.Context()}, runtime, process)
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // series may be missing: the response must not look complete
		}
	})
}

// requested is a collector for one request. It stops reading the engine when ctx is done.
type requested struct {
	*collector
	ctx context.Context
}

// Collect implements prometheus.Collector.
func (r requested) Collect(out chan<- prometheus.Metric) { r.collect(r.ctx, out) }
