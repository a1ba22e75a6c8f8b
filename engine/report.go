package engine

import (
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// maxInstanceText bounds the text of a reported instance, in bytes.
const maxInstanceText = 5 << 10

// Report tells the engine where an instance of a target is in its life. Drivers
// call it; it may come before or after the Apply that names the target. A report
// that says the same again changes nothing. One without a target is ignored, and
// one without an ID says that the target is absent.
//
// A running instance gets its first attempts at Since plus each rule's initial
// delay. An attempt under way on an earlier instance is cancelled, and its answer
// dropped.
func (e *Engine) Report(in probe.Instance) {
	if in.Target == "" {
		return
	}
	if in.ID == "" {
		in.Phase = probe.Absent
	}
	in.Detail = probe.CleanText(in.Detail, maxInstanceText)
	e.mu.Lock()
	defer e.unlock()
	t := e.driven(in)
	if t == nil {
		return
	}
	t.become(in, &e.clock)
	t.start()
	e.lookAll(t)
	e.rouse()
}

// driven returns the record of the instance's target. It makes one, or forgets
// it, where the target has no probes.
func (e *Engine) driven(in probe.Instance) *target {
	e.board.Lock()
	defer e.board.Unlock()
	over := in.Phase == probe.Absent || in.Phase == probe.Gone
	t := e.board.targets[in.Target]
	switch {
	case t == nil && over:
		return nil
	case t == nil:
		return e.board.target(in.Target)
	case over && len(t.slots) == 0:
		delete(e.board.targets, in.Target)
		return nil
	}
	return t
}

// lookAll looks at every probe of a target, startup probes first, and once more
// when one of them was the last that the others waited for.
func (e *Engine) lookAll(t *target) {
	for _, s := range t.slots {
		e.look(s)
	}
	if t.start() {
		e.lookAll(t)
	}
}

// look asks whether s may be attempted now, and schedules what follows. A probe
// that rested and need not any more is attempted at once; one that has its turns
// keeps them.
func (e *Engine) look(s *slot) {
	now := e.clock.now()
	rested := s.record.rest != verdict.NotResting
	next := e.step(s, verdict.Event{Type: verdict.Looked, Instance: s.target.life(&e.clock), Started: s.target.hasStarted()}, now)
	if s.flight != nil && (next.Do != verdict.Attempt || s.flight.instance != s.target.instance.id) {
		e.drop(s)
		rested = true
	}
	switch {
	case next.Do != verdict.Attempt && next.At.IsZero():
		e.unschedule(s)
	case next.Do != verdict.Attempt:
		e.scheduleSoon(s, e.clock.at(next.At))
	case rested || next.Changed:
		e.scheduleSoon(s, now)
	}
}

// drop lets go of the attempt under way: it is cancelled, and its answer will
// not count.
func (e *Engine) drop(s *slot) {
	f := s.flight
	if f == nil {
		return
	}
	s.fly(nil)
	if f.cancel != nil {
		f.cancel()
		return
	}
	f.stopped = true
	e.stopped = append(e.stopped, f)
	e.rouseNow()
}

// Trigger asks for an attempt of a probe as soon as it may be made: not while the
// probe rests, and after the attempt under way, if there is one. Its turns stay as
// they are. It reports whether there is such a probe.
func (e *Engine) Trigger(id probe.ID) bool {
	e.mu.Lock()
	defer e.unlock()
	s := e.board.probe(id)
	if s != nil {
		e.trigger(s, e.clock.now())
	}
	return s != nil
}

func (e *Engine) trigger(s *slot, at int64) {
	switch {
	case s.flight != nil:
		s.again = true
	case s.record.rest == verdict.NotResting && !s.queued:
		e.scheduleSoon(s, at)
		e.rouse()
	}
}

// woken is Trigger for a probe's own handler, which may ask as often as it likes:
// two attempts are MinPeriod apart at least.
func (e *Engine) woken(s *slot) {
	e.mu.Lock()
	defer e.unlock()
	if !s.removed {
		e.trigger(s, max(e.clock.now(), s.due+int64(probe.MinPeriod)))
	}
}
