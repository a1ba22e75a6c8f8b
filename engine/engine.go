// Package engine probes targets on time and publishes what it decided.
//
// An Engine is given a desired set of probes (Apply) and told about the lives of
// targets (Report). It calls handlers, folds what they found through package
// verdict, and publishes verdicts to readers (Status, Target, Watch) and to
// subscribers (Subscribe). It acts on nothing: who restarts an instance reads
// what is published.
//
// A probe that waits costs memory, never a goroutine, a ticker or a timer: one
// heap says what is due. Attempts run on a bounded number of goroutines or, where
// the handler is a nonblock.Stepper, on the one that starts them all.
//
// The life of a probe runs through this package's files in this order: apply.go
// and report.go (what should be probed, and whether it can be), loop.go and
// schedule.go (what is due, and how much of it may begin), attempt.go or steps.go
// (the handler's call), judge.go (what follows), read.go and subscribe.go (who is
// told).
package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/timeline"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// Config is how to make an Engine. The zero Config is usable.
type Config struct {
	// Concurrency bounds the attempts under way at once that need a goroutine.
	// Those of a nonblock.Stepper, which need a descriptor only, may be 16 times as
	// many. What is due beyond it waits in order; the attempts of targets that let
	// them time out leave a quarter of it to the others. Default 1024.
	Concurrency int

	// StartRate paces the first attempts of instances, per second, when very
	// many start together. None waits longer than until its probe's first turn.
	// Default 2000.
	StartRate int

	// Compatibility is that of rules that choose none. Default probe.Mended.
	Compatibility probe.Compatibility

	// Logger gets one line for each verdict that an attempt has changed, at
	// level Info, or Warn when it fails. Default: none.
	Logger *slog.Logger
}

// Defaults of a Config.
const (
	DefaultConcurrency = 1024
	DefaultStartRate   = 2000
)

// Engine runs probes. Make one with New, and call Run once. All its methods may
// be called at any time, by many goroutines at once.
//
// Locks are taken in the order applying, mu, board, then a target's or a slot's.
type Engine struct {
	conf  Config
	clock clock
	wake  chan struct{} // capacity 1: the heap's head has changed

	applying sync.Mutex // one Apply at a time; guards slot.spec against other writers
	specs    specs      // guarded by applying
	closers  closers    // guarded by applying

	mu       sync.Mutex // guards the schedule: all below, and the slots' own schedule
	slots    []*slot    // by heap key
	free     []uint32   // keys of nil slots
	heap     timeline.Timeline
	crowd    crowd     // under way, and due while too many are
	stopped  []*flight // of the loop, to be ended by it
	spare    []*flight // of the loop, to be used again
	pace     pace
	asleep   int64         // the loop sleeps until then; 0 while it is awake
	polling  *nonblock.Set // what it sleeps on; nil: on wake
	began    int64         // when Run began; 0 before
	run      context.Context
	counters counters
	subs     map[*Subscription]struct{}
	news     []news // to be logged once mu is free

	board board
}

// board is what readers look things up in.
type board struct {
	sync.RWMutex
	targets map[string]*target
	probes  int // how many there are
}

// New returns an Engine that probes nothing yet.
func New(c Config) *Engine {
	if c.Concurrency <= 0 {
		c.Concurrency = DefaultConcurrency
	}
	if c.StartRate <= 0 {
		c.StartRate = DefaultStartRate
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Engine{
		conf:     c,
		clock:    newClock(),
		wake:     make(chan struct{}, 1),
		specs:    specs{},
		closers:  closers{},
		crowd:    crowd{concurrency: c.Concurrency},
		pace:     pace{every: int64(time.Second) / int64(c.StartRate), burst: int64(paceBurst)},
		counters: newCounters(),
		subs:     map[*Subscription]struct{}{},
		board:    board{targets: map[string]*target{}},
	}
}

// unlock frees mu and then logs what happened while it was held, since a logger
// is foreign code.
func (e *Engine) unlock() {
	pending := e.news
	e.news = nil
	e.mu.Unlock()
	for _, n := range pending {
		n.log(e.conf.Logger)
	}
}
