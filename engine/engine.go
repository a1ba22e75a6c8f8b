// Package engine probes targets on time and publishes verdicts.
//
// An Engine runs a desired set of probes (Apply) against the instances of targets that drivers report (Report). It calls
// handlers, computes verdicts with package verdict, and publishes them to readers (Status, Target, Watch, WatchTarget) and
// subscribers (Subscribe, SubscribeTargets). It takes no action itself: drivers restart instances, and gateways route requests,
// according to the published state.
//
// Several parts of a program can share an Engine: see Owner. Gateways report the outcomes of their requests with Observe.
//
// A waiting probe costs memory, but no goroutine, ticker or timer: a single heap holds the due times of all probes. Attempts run
// on a limited number of goroutines or, if the handler is a nonblock.Stepper, on the loop's own goroutine.
//
// DESIGN.md lists the invariants that span several functions.
//
// The files, in the order of a probe's life:
//
//	engine.go       Config, New and Run
//	admin.go        Admin and Records: operators' decisions about targets, and the state that outlasts the engine
//	apply.go        Apply: establishes the desired set
//	change.go       Change: changes some of the probes, with their memories
//	owner.go        Owner: one of several parties that share an engine
//	plan.go         plans Apply and Change: compares the desired set with the existing probes
//	memory.go       Memory: the state of a probe that another engine can resume from
//	preview.go      Preview: the effect of a change
//	snapshot.go     Snapshot
//	spec.go         the part of probes that can be shared: rule, handler, target settings
//	report.go       Report and Trigger: input from drivers and users
//	observe.go      Observe: outcomes of requests, observed by gateways
//	traffic.go      request counts per target, reported by gateways
//	registry.go     the targets and their probes, by name
//	index.go        the targets, sorted by name
//	idle.go         the instances of targets without probes
//	states.go       the states of the targets, and the targets in trouble
//	depend.go       which targets depend on others
//	restate.go      Restate: takes over the findings of another engine
//	damping.go      Damping: damps flapping targets
//	pause.go        Pause: targets on which no action is taken
//	slot.go         one probe: its published status and its attempt in flight
//	scheduler.go    applies events: status, subscribers, log
//	timetable.go    the due times of probes
//	outbox.go       effects that run without the lock: log lines, records, closing of handlers
//	start.go        starts attempts, and processes their results
//	loop.go         the goroutine that starts due attempts
//	nonblocking.go  non-blocking attempts, made by the loop
//	worker.go       blocking attempts, made by one goroutine each
//	attempt.go      one attempt, and Once
//	latency.go      limits on an attempt's duration
//	level.go        the rules WarnOnRise and MaxRestarts
//	fault.go        Fault: the latest failure or warning, and its frequency in the latest attempts
//	read.go         Status, Target: the interface for readers
//	gauge.go        Watch and WatchTarget: the interface for the fastest readers
//	proof.go        whether attempts have succeeded with a probe's current handler and rule
//	recent.go       Latencies: durations of the latest attempts, kept on demand
//	outcomes.go     Outcomes: outcomes of the latest attempts of each probe
//	history.go      History: latest transitions of each target
//	uptime.go       Uptime: recent states of each target, and its availability
//	subscribe.go    Subscribe and SubscribeTargets: the interface for subscribers
//	union.go        Union: the targets of an engine, and of a second one that mirrors other engines
//	status.go       the types Status, TargetStatus and Changes
//	stats.go        Stats and histograms
//	health.go       Health: the health of the engine itself
//	excuse.go       failures that a degraded engine excuses
//	isolation.go    whether the engine is cut off from its targets or name servers
//	opinion.go      SeekOpinions: asks others before silence turns a verdict to failing
//	evidence.go     who responded to an attempt
//	isolationlog.go log lines about isolation
//	machine.go      the hosts that are this machine
//	log.go          the log lines
//	unreported.go   the warning about targets without an instance
//
// Package engine/internal/schedule has the scheduling policy: when attempts start, and how many.
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
	// Concurrency limits the attempts in flight that need a goroutine. The limit for attempts of non-blocking handlers, which
	// need only a descriptor, is 16 times as high. Attempts beyond the limit are queued in the order of their due times. A
	// quarter of the goroutines is reserved for probes whose latest attempt did not use up its timeout; first attempts may use
	// half of that reserve. Default 1024.
	Concurrency int

	// StartRate limits the first attempts on new instances, per second, while very many of them start together. It delays a first
	// attempt by at most one period. Default 2000.
	StartRate int

	// Compatibility applies to rules that do not set their own. Default probe.Mended.
	Compatibility probe.Compatibility

	// NoIsolationCheck disables the isolation check: failures without a response then always count against their targets. With
	// the check, such a failure is unknown, with the reason engine.isolated, if at least ten attempts at four or more hosts have
	// waited for a quarter of its timeout or longer, and none of them received a response in the second half of the timeout: then
	// the engine's own network or name server has failed. An attempt counts as waiting if its probe's previous attempt received a
	// response. After an ignored failure, the probe's next failure counts if a response has arrived in between and no such
	// evidence has followed it, or if the target accepted a connection in the first half of the timeout but then did not respond
	// (probe.ReasonHTTPTimeout, probe.ReasonTLSTimeout).
	//
	// Targets and name lookups are checked separately, except that a failed lookup does not count while no target responds. A
	// failure before the timeout, such as a connection without a route, is judged when the timeout has passed; while fewer than
	// ten probes receive responses, it is judged immediately. The host is the one that the handler connects to
	// (probe.EndpointHandler), or else the target's address. Commands, unix sockets and this machine itself, whose addresses are
	// read every ten minutes, are no evidence about the network. Rules with the compatibility probe.Kubelet are not checked.
	NoIsolationCheck bool

	// Logger receives a line
	//
	//   - for the first verdict on an instance, unless a liveness probe passes, as it does initially, and for each change of a
	//     verdict: at level Warn if the probe fails, otherwise, and if an instance has ended as planned, at Info;
	//   - for the first attempt that could not be made after a verdict, and when a probe becomes blind (Status.Blind), at Warn;
	//   - about targets without an instance (see Report), at Warn;
	//   - when the engine becomes degraded (see Health), at Warn, and when it has recovered, at Info;
	//   - for each attempt at Debug, if that is enabled when New is called.
	//
	// At most 100 passing and 100 failing first verdicts, and 100 attempts that could not be made, are logged individually in ten
	// seconds; a single line counts the rest. The logger must not block for long: while it blocks, the engine starts no attempts.
	// Default: no log.
	Logger *slog.Logger

	// Redact replaces secrets in the Detail of results and of reported instances, before the Detail is published. It is called
	// for each attempt that has a detail, must not block, and must be safe for concurrent use by multiple goroutines. Default: no
	// redaction.
	Redact func(text string) string

	// Recorded is called when a record about a target has changed, so that it can be written to disk or sent to other processes.
	// It must not block for long, and must be safe for concurrent use by multiple goroutines. Default: no call.
	Recorded func(target string, r Record)
}

// Defaults of a Config.
const (
	DefaultConcurrency = 1024
	defaultStartRate   = 2000
)

// Engine runs probes. Create an Engine with New, and call Run once. The other methods may be called at any time, even before Run.
// All methods are safe for concurrent use by multiple goroutines.
type Engine struct {
	conf      Config
	registry  *registry
	scheduler *scheduler

	// applyMu is held by one change at a time, from its plan to its commit. It guards the fields below and the probes of each
	// owner. The order of locks is applyMu, scheduler.mu, registry.mu, slot.mu.
	applyMu     sync.Mutex
	definitions definitions
	own         *owner            // owner of the probes added by Engine.Apply and Engine.Change
	owners      map[string]*owner // all other owners, by name
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

// Run makes attempts until ctx is done. It then cancels the attempts in flight, discards their results, closes the handlers, and
// returns nil after all goroutines that it started have exited. A second call returns an error immediately.
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
