// Package engine probes targets on time and publishes verdicts.
//
// An Engine runs a desired set of probes (Apply) against the instances of targets
// that drivers report (Report). It calls handlers, decides with package verdict,
// and publishes to readers (Status, Target, Watch, WatchTarget) and subscribers (Subscribe,
// SubscribeTargets). It takes no action itself: a driver that restarts instances, or a gateway
// that sends requests, reads what is published.
//
// Several parts of a program can share an Engine: see Owner. What a gateway sees of its
// targets itself it tells the Engine with Observe.
//
// A probe that waits costs memory, but no goroutine, ticker or timer: one heap holds
// what is due. Attempts run on a limited number of goroutines or, where the handler
// is a nonblock.Stepper, on the loop's own.
//
// DESIGN.md lists the invariants that no single function shows.
//
// The files, in the order of a probe's life:
//
//	engine.go       Config, New and Run
//	admin.go        Admin and Records: what operators decide about targets, and what outlasts the engine
//	apply.go        Apply: makes the desired set
//	change.go       Change: a part of the probes, with their memories
//	owner.go        Owner: several that share an engine
//	plan.go         what Apply and Change have to do: compares the desired set with what exists
//	memory.go       Memory: what is remembered about a probe
//	preview.go      Preview: what an Apply would do
//	snapshot.go     Snapshot
//	spec.go         what probes share: rule, handler, target settings
//	report.go       Report and Trigger: what drivers and users tell the engine
//	observe.go      Observe: what gateways tell the engine
//	traffic.go      what gateways say of the requests to a target
//	registry.go     the targets and their probes, by name
//	index.go        the targets in the order of their names
//	idle.go         the instances of targets that have lost their probes
//	states.go       the states of the targets, and which are in trouble
//	depend.go       which targets depend on others
//	restate.go      Restate: what another engine has found out
//	damping.go      Damping: which targets are damped, since they flap
//	pause.go        Pause: which targets nothing is to be done about
//	slot.go         one probe: its published status and its attempt in flight
//	scheduler.go    what follows from events: status, subscribers, log
//	timetable.go    when probes are due
//	outbox.go       effects, which happen without the lock: log lines, records, handlers to close
//	start.go        starts attempts, and takes their results
//	loop.go         the goroutine that starts what is due
//	nonblocking.go  attempts that the loop makes without blocking
//	worker.go       attempts that need a goroutine each
//	attempt.go      one attempt, and Once
//	latency.go      limits of an attempt's duration
//	level.go        the level of Rule.WarnOnRise
//	fault.go        Fault: the latest failure or warning, and how many of the latest attempts were like it
//	read.go         Status, Target: what readers get
//	gauge.go        Watch and WatchTarget: what the fastest readers get
//	proof.go        whether attempts have succeeded with the handler and the rule that a probe has now
//	recent.go       Latencies: how long the latest attempts took, while somebody looks
//	outcomes.go     Outcomes: the outcomes of the latest attempts of each probe
//	history.go      History: the latest transitions of each target
//	uptime.go       Uptime: the states of each target in the last days, and its availability
//	subscribe.go    Subscribe and SubscribeTargets: what subscribers get
//	union.go        Union: the targets of an engine, and of one that shows those of others
//	status.go       the types Status, TargetStatus and Changes
//	stats.go        Stats and histograms
//	health.go       Health: whether the engine itself is well
//	excuse.go       what an engine that is not well excuses
//	isolation.go    whether the engine is cut off from its targets or name servers
//	opinion.go      SeekOpinions: who else is asked before a verdict turns to failing without an answer
//	evidence.go     who has answered an attempt
//	isolationlog.go log lines about isolation
//	machine.go      which hosts are this machine
//	log.go          the log lines
//	unreported.go   the warning about targets without an instance
//
// Package engine/internal/schedule has the policy: when attempts start, and how many.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/sonde-probe/sonde/engine/internal/schedule"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures an Engine. The zero Config is usable.
type Config struct {
	// Concurrency limits the attempts in flight that need a goroutine. Attempts of
	// non-blocking handlers, which need a descriptor only, are limited to 16 times
	// as many. Attempts beyond the limit queue in the order in which they are due.
	// A quarter of the goroutines is reserved for probes whose latest attempt did
	// not use up its timeout; first attempts may use half of that. Default 1024.
	Concurrency int

	// StartRate limits the first attempts on new instances, per second, while very
	// many start together. It delays a first attempt by at most one period.
	// Default 2000.
	StartRate int

	// Compatibility applies to rules that do not set their own. Default
	// probe.Mended.
	Compatibility probe.Compatibility

	// NoIsolationCheck makes failures without an answer count against their targets even if
	// no target or name server answers. Otherwise such a failure is unknown,
	// with the reason engine.isolated, if ten or more attempts at four or more hosts have waited for a
	// quarter of its timeout or longer, and none was answered in the second half of it: then
	// the engine's own network or name server has failed. Attempts wait if their probe's latest
	// attempt was answered. After a failure that was ignored, the next one of the probe counts if
	// an answer has come in between and no such evidence has followed it, or if the target has
	// accepted a connection in the first half of the timeout and then not responded
	// (probe.ReasonHTTPTimeout, probe.ReasonTLSTimeout).
	//
	// Targets and lookups of names are judged apart, but no lookup fails while no
	// target answers. A failure before the timeout, such as a connection without a route,
	// is judged when the timeout has passed; at once while fewer than ten probes
	// are answered. The host is where the handler connects (probe.EndpointHandler), or the
	// target's address. Commands, unix sockets and this machine, whose addresses are read
	// every ten minutes, say nothing about the network. There is no such check for rules
	// with the compatibility probe.Kubelet.
	NoIsolationCheck bool

	// Logger gets a line for the first verdict on an instance, unless a liveness probe
	// passes as it did from the start, and for each change of a verdict, at level Warn
	// if the probe fails and Info otherwise; for the first attempt that could not be made
	// after a verdict, and when a probe becomes blind (Status.Blind), at Warn; and a warning
	// about targets without an instance (see Report); and when the engine becomes degraded (see Health), at Warn, and is well
	// again, at Info. First verdicts have a line each up to
	// 100 passing and 100 failing ones in ten seconds, and so have attempts that could not be
	// made; any more are counted in one line. Each attempt has a line at Debug, if that is
	// enabled when New is called.
	// The logger must not block for long: while it does, the engine starts no attempts.
	// Default: no log.
	Logger *slog.Logger

	// Redact replaces what must not be shown in the Detail of results and of reported
	// instances, before anybody sees it. It is called for each attempt that has a detail, must
	// not block, and must be safe for concurrent use by multiple goroutines. Default: nothing.
	Redact func(text string) string

	// Recorded is called when a record about a target has changed, to write it to a disk or to send it
	// to others. It must not block for long, and must be safe for concurrent use by multiple goroutines.
	// Default: nothing.
	Recorded func(target string, r Record)
}

// Defaults of a Config.
const (
	DefaultConcurrency = 1024
	defaultStartRate   = 2000
)

// Engine runs probes. Create one with New, and call Run once. The other methods
// may be called at any time, also before Run. All methods are safe for
// concurrent use by multiple goroutines.
type Engine struct {
	conf      Config
	registry  *registry
	scheduler *scheduler

	// applyMu is held by one change at a time, from its plan to its end. It guards the fields below and the probes of
	// each owner. The order of locks is applyMu, scheduler.mu, registry.mu, slot.mu.
	applyMu     sync.Mutex
	definitions definitions
	own         *owner            // of what Engine.Apply and Engine.Change have added
	owners      map[string]*owner // the others that exist, by name
}

// New returns an Engine without probes.
func New(c Config) *Engine {
	if c.Concurrency <= 0 {
		c.Concurrency = DefaultConcurrency
	}
	if c.StartRate <= 0 {
		c.StartRate = defaultStartRate
	}
	if c.Redact == nil {
		c.Redact = func(text string) string { return text }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	r := newRegistry()
	return &Engine{conf: c, registry: r, scheduler: newScheduler(c, r), definitions: definitions{}, own: &owner{}, owners: map[string]*owner{}}
}

// Run makes the attempts until ctx is done. Then it cancels the attempts in flight,
// drops their results, closes the handlers, and returns nil when every goroutine
// that it started has ended. A second call returns an error at once.
func (e *Engine) Run(ctx context.Context) error {
	if !e.scheduler.begin(ctx) {
		return errors.New("engine: Run was called before")
	}
	sc := e.scheduler
	var background sync.WaitGroup
	if !sc.peers.unchecked {
		background.Go(func() { sc.followMachine(ctx) })
	}
	background.Go(func() { e.registry.warnOfUnreported(ctx, e.conf.Logger) })
	l := &loop{scheduler: sc, workers: workers{scheduler: sc}, nonBlocking: nonBlocking{
		clock: sc.clock, monitor: sc.monitor, redact: sc.redact, limit: e.conf.Concurrency * schedule.NonBlockingPerWorker,
	}}
	l.run(ctx)
	background.Wait()
	e.applyMu.Lock()
	defer e.applyMu.Unlock()
	sc.mu.Lock()
	defer sc.unlock()
	sc.closers.closeAll()
	return nil
}
