package prom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Plugin is what a scrape shows of one plugin. It is data, so that who shows
// metrics need not link what runs plugins. Counts only grow.
type Plugin struct {
	Name string // another for each plugin

	Ready     bool          // it is compiled
	Compile   time.Duration // what compiling, or reading compiled code, has taken
	CacheHit  bool          // compiled code was read
	Suspended bool          // it traps so often that no attempts are made for a while
	Suspends  uint64        // how often it was suspended

	Instances int           // that run or are idle
	Idle      int           // of those
	Waiting   int           // attempts that wait for an instance now
	Waits     uint64        // attempts that had to wait
	Started   uint64        // instances
	Start     time.Duration // what all starts have taken together

	Faults  map[string]uint64 // attempts that the plugin has not ended well, by reason: "plugin.trap"
	Refused uint64            // dials and lookups that are not granted
	Held    int               // connections that are kept between attempts
	Dropped uint64            // log records that were too many

	Values []PluginValue // that the plugin has set
}

// PluginValue is a gauge or a counter of the plugin's own.
type PluginValue struct {
	Name    string // another for each value
	Counter bool
	Value   float64
}

// pluginDescriptions are the descriptions of plugins' metrics.
type pluginDescriptions struct {
	ready, compile, cacheHit, suspended, suspends *prometheus.Desc
	instances, waiting, waits, started, start     *prometheus.Desc
	faults, refused, held, dropped, gauge, count  *prometheus.Desc
}

// newPluginDescriptions is a table.
func newPluginDescriptions() pluginDescriptions {
	one := []string{"plugin"}
	own := []string{"plugin", "name"}
	return pluginDescriptions{
		ready:     describe("sonde_plugin_ready", "1 if the plugin is compiled, else 0.", one),
		compile:   describe("sonde_plugin_compile_seconds", "How long compiling the plugin, or reading its compiled code, has taken.", one),
		cacheHit:  describe("sonde_plugin_cache_hit", "1 if the plugin's compiled code was read, 0 if it was compiled.", one),
		suspended: describe("sonde_plugin_suspended", "1 while the plugin is suspended, since it traps too often, else 0.", one),
		suspends:  describe("sonde_plugin_suspensions_total", "How often the plugin was suspended.", one),

		instances: describe("sonde_plugin_instances", "Instances of the plugin that make an attempt (busy) or wait for one (idle).", []string{"plugin", "state"}),
		waiting:   describe("sonde_plugin_attempts_waiting", "Attempts that wait for an instance of the plugin.", one),
		waits:     describe("sonde_plugin_waits_total", "Attempts that had to wait for an instance of the plugin.", one),
		started:   describe("sonde_plugin_instances_started_total", "Instances of the plugin that were started.", one),
		start:     describe("sonde_plugin_start_seconds_total", "How long all starts of instances have taken together.", one),

		faults:  describe("sonde_plugin_faults_total", "Attempts that the plugin has not ended well, by reason.", []string{"plugin", "reason"}),
		refused: describe("sonde_plugin_refused_total", "Dials and lookups that the plugin is not granted.", one),
		held:    describe("sonde_plugin_held_connections", "Connections that the plugin keeps between attempts.", one),
		dropped: describe("sonde_plugin_log_dropped_total", "Log records of the plugin that were too many.", one),

		gauge: describe("sonde_plugin_value", "A gauge that the plugin itself has set.", own),
		count: describe("sonde_plugin_value_total", "A counter that the plugin itself has added to.", own),
	}
}

// all returns all descriptions.
func (d *pluginDescriptions) all() []*prometheus.Desc {
	return []*prometheus.Desc{
		d.ready, d.compile, d.cacheHit, d.suspended, d.suspends, d.instances, d.waiting, d.waits, d.started, d.start,
		d.faults, d.refused, d.held, d.dropped, d.gauge, d.count,
	}
}

// plugin sends what is known of a plugin.
func (s scrape) plugin(p Plugin) {
	d := &s.desc.plugin
	s.gauge(d.ready, number(p.Ready), p.Name)
	s.gauge(d.compile, p.Compile.Seconds(), p.Name)
	s.gauge(d.cacheHit, number(p.CacheHit), p.Name)
	s.gauge(d.suspended, number(p.Suspended), p.Name)
	s.counter(d.suspends, float64(p.Suspends), p.Name)
	s.gauge(d.instances, float64(p.Instances-p.Idle), p.Name, "busy")
	s.gauge(d.instances, float64(p.Idle), p.Name, "idle")
	s.gauge(d.waiting, float64(p.Waiting), p.Name)
	s.counter(d.waits, float64(p.Waits), p.Name)
	s.counter(d.started, float64(p.Started), p.Name)
	s.counter(d.start, p.Start.Seconds(), p.Name)
	for reason, n := range p.Faults {
		s.counter(d.faults, float64(n), p.Name, reason)
	}
	s.counter(d.refused, float64(p.Refused), p.Name)
	s.gauge(d.held, float64(p.Held), p.Name)
	s.counter(d.dropped, float64(p.Dropped), p.Name)
	for _, v := range p.Values {
		if v.Counter {
			s.counter(d.count, v.Value, p.Name, v.Name)
		} else {
			s.gauge(d.gauge, v.Value, p.Name, v.Name)
		}
	}
}
