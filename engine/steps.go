package engine

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/timeline"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// steps makes the attempts of nonblock.Steppers. Only the loop's goroutine uses it.
type steps struct {
	clock     *clock
	set       *nonblock.Set     // nil until the first attempt waits
	broken    bool              // there can be no set
	flights   []*flight         // that wait, by key; nil for a free key
	free      []uint32          // keys
	waiting   int               // how many flights wait
	deadlines timeline.Timeline // by key
	over      []*flight         // have ended, and are to be landed
	blocking  []*flight         // cannot be made in steps
	spares    nonblock.Spares   // sockets that attempts have left
}

// stepping is the part of a flight that the loop makes itself.
type stepping struct {
	attempt  nonblock.Attempt
	start    int64 // of the whole attempt
	deadline int64 // of this try
	key      uint32
	waits    bool // it has a key
	tries    uint8
	panics   int
	watched  int // the descriptor that is waited for
}

// begin begins the first try of an attempt.
func (s *steps) begin(f *flight) {
	f.start, f.tries, f.panics = s.clock.now(), 0, 0
	s.try(f, f.start)
}

func (s *steps) try(f *flight, now int64) {
	f.tries++
	f.deadline = now + int64(f.probe.Rule.Timeout)
	f.attempt = nonblock.Attempt{Target: f.probe.Target, Buffer: f.attempt.Buffer, Spares: &s.spares}
	s.step(f, nonblock.StepBegin)
}

// step lets a handler go on.
func (s *steps) step(f *flight, ev nonblock.Event) {
	progress := f.call(ev)
	if progress == nonblock.StepWait && ev <= nonblock.StepReady && s.watch(f) {
		return
	}
	if progress == nonblock.StepWait { // it cannot be waited for, or should have ended
		f.call(nonblock.StepStop)
		progress = nonblock.StepBlock
	}
	s.forget(f)
	switch {
	case ev == nonblock.StepStop:
		s.over = append(s.over, f)
	case progress == nonblock.StepBlock && ev != nonblock.StepLate:
		s.blocking = append(s.blocking, f)
	default:
		s.end(f)
	}
}

// call calls the handler.
func (f *flight) call(ev nonblock.Event) (progress nonblock.Progress) {
	defer func() {
		if r := recover(); r != nil {
			f.panics++
			f.attempt.Result = probe.Broken(probe.ReasonPanic, "handler panicked: %v\n%s", r, debug.Stack())
			progress = nonblock.StepDone
		}
	}()
	f.attempt.Event = ev
	return f.stepper.Step(&f.attempt)
}

// watch waits for a flight's descriptor, and reports whether that can be done.
func (s *steps) watch(f *flight) bool {
	if f.waits && f.watched == f.attempt.FD {
		return true
	}
	if s.broken || s.set == nil && !s.open() {
		return false
	}
	if !f.waits {
		s.enter(f)
	}
	f.watched = f.attempt.FD
	return s.set.Add(f.watched, f.key) == nil
}

func (s *steps) open() bool {
	set, err := nonblock.NewSet()
	s.broken = err != nil
	if !s.broken {
		s.set = set
	}
	return !s.broken
}

// enter gives a flight a key, and has it end in time.
func (s *steps) enter(f *flight) {
	if n := len(s.free); n > 0 {
		f.key, s.free = s.free[n-1], s.free[:n-1]
	} else {
		f.key = uint32(len(s.flights))
		s.flights = append(s.flights, nil)
	}
	s.flights[f.key] = f
	s.deadlines.Set(f.key, f.deadline)
	f.waits = true
	s.waiting++
}

// forget takes a flight's key back. Its descriptor is closed.
func (s *steps) forget(f *flight) {
	if !f.waits {
		return
	}
	s.flights[f.key] = nil
	s.free = append(s.free, f.key)
	s.deadlines.Remove(f.key)
	f.waits = false
	s.waiting--
}

// end ends a try, and the attempt unless it is to be tried again.
func (s *steps) end(f *flight) {
	res, now := &f.attempt.Result, s.clock.now()
	switch good := res.Outcome == probe.Success || res.Outcome == probe.Warning; {
	case good && now > f.deadline:
		*res = tooLate(f.probe.Rule.Timeout, res.Detail)
	case res.Outcome > probe.Failure:
		*res = probe.Broken(probe.ReasonPanic, "handler returned the outcome %s", fmt.Sprint(res.Outcome))
	case res.Outcome == probe.Unknown && f.tries < maxTries:
		s.try(f, now)
		return
	}
	res.Took, res.Tries = time.Duration(now-f.start), f.tries
	if res.Detail != "" {
		res.Detail = probe.CleanText(res.Detail, probe.MaxDetail)
	}
	s.over = append(s.over, f)
}

// stop ends an attempt that nobody wants any more, if it waits.
func (s *steps) stop(f *flight) {
	if f.waits {
		s.step(f, nonblock.StepStop)
	}
}

// await waits until descriptors are ready, an attempt's time is over, the loop is
// woken, or until.
func (s *steps) await(until int64) {
	if _, deadline, ok := s.deadlines.First(); ok {
		until = min(until, deadline)
	}
	if err := s.set.Wait(max(0, s.clock.until(until)), s.ready); err != nil {
		s.giveUp()
		return
	}
	s.expire(s.clock.now())
}

func (s *steps) ready(key uint32) {
	if f := s.flights[key]; f != nil {
		s.step(f, nonblock.StepReady)
	}
}

// expire ends the attempts whose time is over.
func (s *steps) expire(now int64) {
	for {
		key, due, ok := s.deadlines.First()
		if !ok || due > now {
			return
		}
		s.step(s.flights[key], nonblock.StepLate)
	}
}

// giveUp goes on without a set: the system has refused what it should not.
func (s *steps) giveUp() {
	s.broken = true
	for _, f := range s.flights {
		if f != nil {
			f.call(nonblock.StepStop)
			s.forget(f)
			s.blocking = append(s.blocking, f)
		}
	}
}

// close ends all attempts, and gives back what the system has given.
func (s *steps) close() {
	for _, f := range s.flights {
		if f != nil {
			s.stop(f)
		}
	}
	for fd, ok := s.spares.Take(); ok; fd, ok = s.spares.Take() {
		_ = nonblock.CloseDescriptor(fd) // likewise
	}
	if s.set != nil {
		_ = s.set.Close() // the descriptors are gone in any case
		s.set = nil
	}
}
