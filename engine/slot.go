package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// slot is one probe that exists. There may be a million of them, so that times
// are nanoseconds on the engine's clock, with 0 for none, and what many probes
// share, or few have, is behind a pointer.
type slot struct {
	target *target
	name   string // of the probe's ID
	key    uint32 // in the heap
	kind   probe.Kind

	// The schedule, guarded by Engine.mu.
	soon   bool    // the next attempt is out of turn, and paced
	paced  bool    // due is the time that the pace has given
	again  bool    // another attempt was asked for while one was under way
	queued bool    // in Engine.crowd
	prompt bool    // there was an attempt, and the last one did not use its time up in vain
	shed   bool    // the last turn was given up
	due    int64   // when the attempt under way, or the next, was or is due
	flight *flight // the attempt under way whose answer counts, or nil

	mu      sync.Mutex // guards what follows, which is written with Engine.mu held too
	removed bool
	spec    *spec
	address string
	record  record
	gauge   *Gauge     // nil until somebody watches
	took    *histogram // durations of successes, in the kubelet's compatibility only
}

// record is what is published about a probe.
type record struct {
	rest     verdict.Rest
	flying   bool // an attempt is under way
	changes  uint64
	state    verdict.State
	since    int64
	next     int64         // when the next attempt is due; 0 when none is
	result   *probe.Result // nil before the first; read and written in place
	resultAt int64
	attempts [4]uint64
}

func (s *slot) id() probe.ID             { return probe.ID{Target: s.target.name, Kind: s.kind, Name: s.name} }
func (s *slot) probe() probe.Probe       { return s.spec.probe(s.target.name, s.address) }
func (s *slot) turn(at int64) int64      { return turn(s.id(), s.spec.rule.Period, at) }
func (s *slot) nextTurn(now int64) int64 { return s.turn(now + int64(s.spec.rule.Period)/2) }

// compare orders the slots of a target.
func (s *slot) compare(id probe.ID) int {
	return cmp.Or(cmp.Compare(s.kind, id.Kind), strings.Compare(s.name, id.Name))
}

// flight is an attempt under way. It holds all the attempt needs, so that the
// slot can go on to another probe or instance without waiting for it.
type flight struct {
	slot     *slot
	probe    probe.Probe
	instance string // its ID
	next     int64  // the probe's turn after it
	lane     lane

	// The loop makes it, where the handler can be driven so.
	stepper nonblock.Stepper
	stepping
	stopped bool // nobody wants it any more; guarded by Engine.mu

	// A goroutine makes it, else.
	ctx    context.Context
	cancel context.CancelFunc
	wake   func() // for a handler that wakes its probe; else nil
}

// target is what is known about a target's instance.
type target struct {
	name  string
	slots []*slot  // sorted; guarded by Engine.board, replaced and never written
	only  [1]*slot // what slots begins as: most targets have one probe, and need no other memory

	mu       sync.Mutex // guards what follows, which is written with Engine.mu held too
	instance life
	started  bool // the instance has started
}

// life is a probe.Instance, made small.
type life struct {
	id       string
	since    int64 // 0 for the zero time
	restarts int32
	phase    probe.Phase
	managed  bool
	leaving  bool
	told     *told // nil where nothing is told
}

// told is what a driver says about an instance to people.
type told struct {
	reason probe.Reason
	detail string
}

func lifeOf(in probe.Instance, c *clock) life {
	l := life{
		id: in.ID, since: c.at(in.Since), restarts: in.Restarts,
		phase: in.Phase, managed: in.Managed, leaving: in.Leaving,
	}
	if in.Reason != "" || in.Detail != "" {
		l.told = &told{in.Reason, in.Detail}
	}
	return l
}

func (t *target) life(c *clock) probe.Instance {
	l := &t.instance
	in := probe.Instance{
		Target: t.name, ID: l.id, Phase: l.phase, Managed: l.managed, Leaving: l.leaving, Restarts: l.restarts,
		Since: c.time(l.since),
	}
	if l.told != nil {
		in.Reason, in.Detail = l.told.reason, l.told.detail
	}
	return in
}

// slot returns a probe of the target and its place among the others.
func (t *target) slot(id probe.ID) (s *slot, at int) {
	if len(t.slots) == 1 && t.slots[0].kind == id.Kind && t.slots[0].name == id.Name {
		return t.slots[0], 0
	}
	at, found := slices.BinarySearchFunc(t.slots, id, (*slot).compare)
	if found {
		s = t.slots[at]
	}
	return s, at
}

// insert puts a probe at its place. Whoever reads the slots that were there may go
// on.
func (t *target) insert(at int, s *slot) {
	if len(t.slots) == 0 && t.only[0] == nil {
		t.only[0] = s
		t.slots = t.only[:]
		return
	}
	t.slots = slices.Insert(slices.Clone(t.slots), at, s)
}

// hasStarted reports whether the target's instance runs and has started.
func (t *target) hasStarted() bool { return t.instance.phase == probe.Running && t.started }

// become makes in the target's instance.
func (t *target) become(in probe.Instance, c *clock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started = t.started && t.instance.id == in.ID
	t.instance = lifeOf(in, c)
}

// start marks a running instance as started once all its startup probes have
// passed, and reports whether that is news. An instance that has started stays
// so, whatever probes it gets later; but one without any probe may have been
// reported before its probes were applied.
func (t *target) start() bool {
	if t.instance.phase != probe.Running || t.started || len(t.slots) == 0 {
		return false
	}
	for _, s := range t.slots {
		st := s.record.state
		if s.kind == probe.Startup && (st.Instance != t.instance.id || st.Verdict != probe.Passing) {
			return false
		}
	}
	t.mu.Lock()
	t.started = true
	t.mu.Unlock()
	return true
}
