// Package stats has the type of a plugin's metrics. It is separate from package wasmhost, so that a
// program that displays them need not link the plugin host.
package stats

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Plugin is a snapshot of the metrics of one plugin. Fields of type uint64 are counters.
type Plugin struct {
	Name string // the plugin's name in logs and errors

	Ready   bool // the plugin is compiled
	IsShare bool // shares the code and instances of another plugin; fields Compile to Start are 0

	Compile  time.Duration // time to compile, or to load compiled code from the cache
	CacheHit bool          // compiled code was found in the cache

	Memory    int64         // bytes used, including the image and prepared data
	Instances int           // live instances, running or idle
	Idle      int           // idle instances
	Waiting   int           // attempts that are waiting for an instance
	Started   uint64        // instances that were started
	Start     time.Duration // total time of all starts

	Attempts         uint64                  // attempts that called an instance
	Fuel             uint64                  // units of fuel used by attempts; see docs/plugins.md
	Waits            uint64                  // attempts that had to wait for an instance
	Errors           map[probe.Reason]uint64 // attempts that ended in an error of the plugin, by reason (plugin.…)
	Denied           uint64                  // dials and lookups that were denied
	Held             int                     // held connections
	Dropped          uint64                  // log records dropped at a limit
	Suspended        time.Duration           // remaining time of the suspension; 0 when not suspended
	Suspensions      uint64                  // suspensions of the plugin after errors at many targets
	ProbeSuspensions uint64                  // suspensions of single probes after too many errors

	Metrics []Metric // set by the plugin
}

// Metric is a metric that a plugin has set.
type Metric struct {
	Name    string
	Counter bool // false: a gauge
	Value   float64
}
