// Package stats has the numbers of a plugin, for metrics. It is apart from package
// wasmhost, so that a program that shows them need not link the plugin host.
package stats

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Plugin is the numbers of one plugin at one moment. Fields of type uint64 only grow.
type Plugin struct {
	Name string // the plugin's name in logs and errors

	Ready   bool // the plugin is compiled
	IsShare bool // it uses the code and the instances of another plugin, which has their numbers: they are 0 here, from Compile to Start

	Compile  time.Duration // time to compile, or to load compiled code from the cache
	CacheHit bool          // compiled code was found in the cache

	Memory    int64         // bytes that live instances use
	Instances int           // live instances, running or idle
	Idle      int           // idle instances
	Waiting   int           // attempts that are waiting for an instance
	Started   uint64        // instances that were started
	Start     time.Duration // total time of all starts

	Attempts         uint64                  // attempts that called an instance
	Fuel             uint64                  // units that attempts have used; docs/plugins.md describes them
	Waits            uint64                  // attempts that had to wait for an instance
	Errors           map[probe.Reason]uint64 // attempts that ended in an error of the plugin, by reason (plugin.…)
	Denied           uint64                  // dials and lookups that are not granted
	Held             int                     // connections that are held now
	Dropped          uint64                  // log records above a limit
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
