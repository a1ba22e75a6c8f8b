// Package schedule decides when attempts start: which probe is due, how many attempts may be in flight, how fast first attempts
// follow each other, and which attempts an overloaded engine skips.
//
// It is a plain data structure without a clock, locks or goroutines: the caller passes the time, in nanoseconds, to each call,
// and makes one call at a time. Its test compares it with a slow but obviously correct model.
//
//	schedule.go  Schedule: the due times of probes, and the steps of an attempt
//	limiter.go   the limit on attempts in flight, with one queue per lane
//	pacer.go     the rate of extra attempts
//	times.go     the regular times of a probe
package schedule

import (
	"time"

	"github.com/sonde-probe/sonde/engine/internal/timeline"
	"github.com/sonde-probe/sonde/probe"
)

const (
	// maxEarly is how much earlier than due a non-blocking attempt may start, so that attempts with close due times start
	// together: waking up costs as much as such an attempt. Only attempts at regular times start early. Compared with HAProxy's
	// checks at 2,000 per second, 5 ms resulted in 1.13 times the CPU time, 10 ms in 1.05 and 20 ms in 0.95.
	maxEarly = 20 * time.Millisecond

	// An attempt starts early by at most 1/earlyShare of its period.
	earlyShare = 50

	// Start may skip an attempt that is late by more than minShedAfter and by more than 1/shedShare of its period.
	minShedAfter = 100 * time.Millisecond
	shedShare    = 50

	// An attempt requested by a caller of Trigger other than the handler follows the previous one after at least 1/triggerShare
	// of the period, if one of the previous two was requested in the same way: a caller that triggers an attempt for each failed
	// request must not turn the probe into a load generator.
	triggerShare = 10
)

// Schedule has the probes by key, each with the due time of its next attempt. An attempt passes through these steps: At or Extra
// makes the probe due, Pop returns it, Admit lets it start, wait or queue, Start counts it as in flight, Finish and Release end
// it, and Next sets the time of the following attempt.
//
// A is the caller's type for an attempt in flight, which Handoff can queue.
type Schedule[A any] struct {
	counters

	began    int64 // time before it does not count as lateness
	timeline timeline.Timeline
	pacer    pacer
	limiter  limiter[A]
	entries  []entry // by key
	free     []uint32
}

// counters count attempts that were not made at their regular times.
type counters struct {
	Overrun uint64 // skipped: the probe's previous attempt was still in flight
	Late    uint64 // skipped: the engine was more than a period late
	Shed    uint64 // skipped: the engine was late, and the probe was passing
}

// entry is the schedule's state of one probe.
type entry struct {
	times  Times
	due    int64  // of the attempt in flight, or of the latest one
	ticket uint32 // of its place in a queue; counts on for each key, even if the key is reused
	flags  flags
	queue  Lane // lane in whose queue it has its place, if queued is set
}

type flags uint16

const (
	nonBlocking flags = 1 << iota // attempts need no goroutine
	extra                         // the next attempt is not at a regular time
	asked                         // an extra attempt that the probe's handler requested
	triggered                     // an extra attempt that another caller requested
	spaced                        // another caller requested one of the latest two attempts
	fading                        // spaced, but the latest attempt was not requested
	paced                         // the pacer has set the time of the next attempt
	close                         // the next regular time may be less than a period after an attempt that counted
	queued                        // waits in the limiter
	inflight                      // an attempt is in flight
	again                         // inflight, and another attempt was requested
	known                         // an attempt has finished
	fast                          // the latest attempt finished well within its timeout
	shed                          // the latest attempt was shed
)

func (e *entry) is(f flags) bool { return e.flags&f != 0 }

func (e *entry) set(f flags, on bool) {
	if on {
		e.flags |= f
	} else {
		e.flags &^= f
	}
}

// mayStart reports whether an attempt that is due at due may start at now.
func (e *entry) mayStart(due, now int64) bool {
	if due > now && e.is(nonBlocking) && !e.is(extra) {
		now += min(int64(maxEarly), e.times.Period/earlyShare)
	}
	return due <= now
}

// lane returns the lane of the probe's attempts.
func (e *entry) lane() Lane {
	if e.is(nonBlocking) {
		return NonBlocking
	}
	return e.workerLane()
}

// workerLane returns the lane of an attempt that needs a goroutine.
func (e *entry) workerLane() Lane {
	switch {
	case !e.is(known):
		return First
	case e.is(fast):
		return Fast
	}
	return Slow
}

// New returns a Schedule without probes. concurrency limits the attempts in flight that need a goroutine. startRate limits extra
// attempts per second.
func New[A any](concurrency, startRate int) *Schedule[A] {
	return &Schedule[A]{
		limiter: limiter[A]{concurrency: concurrency},
		pacer:   pacer{interval: int64(time.Second) / int64(startRate), burst: int64(pacerBurst)},
	}
}

// Begin starts the schedule: lateness of attempts that were due earlier counts from now.
func (s *Schedule[A]) Begin(now int64) { s.began = now }

// Add adds a probe and returns its key. The probe is not due yet.
func (s *Schedule[A]) Add(times Times, withoutBlocking bool) (key uint32) {
	if n := len(s.free); n > 0 {
		key, s.free = s.free[n-1], s.free[:n-1]
		s.entries[key] = entry{ticket: s.entries[key].ticket}
	} else {
		key = uint32(len(s.entries))
		s.entries = append(s.entries, entry{})
	}
	s.Configure(key, times, withoutBlocking)
	return key
}

// Configure changes a probe's regular times. withoutBlocking means that its attempts never block, so that they need no goroutine
// of their own. The due time of the probe does not change.
func (s *Schedule[A]) Configure(key uint32, times Times, withoutBlocking bool) {
	e := &s.entries[key]
	if e.times.Period != 0 && e.times.Period != times.Period {
		e.set(close, true)
	}
	e.times = times
	e.set(nonBlocking, withoutBlocking)
}

// Replan returns the regular time of the attempt after one that began at began, if Configure changed the period because of the
// result of that attempt. After a failure it is a whole period later, so that another failure counts.
func (s *Schedule[A]) Replan(key uint32, began int64, failed bool) (planned int64) {
	e := &s.entries[key]
	if !failed {
		return e.times.after(began)
	}
	e.set(close, false)
	return e.times.From(began + e.times.Period)
}

// Times returns a probe's regular times.
func (s *Schedule[A]) Times(key uint32) Times { return s.entries[key].times }

// Remove removes a probe. Its key may be returned by the next Add.
func (s *Schedule[A]) Remove(key uint32) {
	s.timeline.Remove(key)
	s.entries[key].set(queued, false)
	s.free = append(s.free, key)
}

// At schedules a probe at one of its regular times.
func (s *Schedule[A]) At(key uint32, at int64) {
	s.entries[key].set(extra|asked|triggered|paced, false)
	s.timeline.Set(key, at)
}

// Extra schedules a probe at any other time, for example for the first attempt on an instance. The pacer may delay it, but not
// beyond the probe's next regular time. An attempt that starts at a regular time, or for which a regular time has passed while it
// waited, is the regular attempt of that time.
func (s *Schedule[A]) Extra(key uint32, at int64) {
	e := &s.entries[key]
	e.set(extra, true)
	e.set(asked|triggered|paced, false)
	s.timeline.Set(key, at)
}

// Cancel unschedules a probe.
func (s *Schedule[A]) Cancel(key uint32) { s.timeline.Remove(key) }

// IsDue reports whether a probe has a due time.
func (s *Schedule[A]) IsDue(key uint32) bool {
	_, ok := s.timeline.Due(key)
	return ok
}

// First returns the first due time, or math.MaxInt64 if no probe is scheduled.
func (s *Schedule[A]) First() (at int64) { return s.timeline.Next() }

// Pop returns the probe that is due first and its due time, if it is due at now or may start early. It unschedules the probe.
func (s *Schedule[A]) Pop(now int64) (key uint32, due int64, ok bool) {
	key, due, ok = s.timeline.First()
	if !ok || !s.entries[key].mayStart(due, now) {
		return 0, 0, false
	}
	s.timeline.Remove(key)
	return key, due, true
}

// Admit decides whether the attempt of a probe that Pop has returned may start now; due is the time returned by Pop. If start is
// false and at is 0, the attempt's lane is full, since the attempts of a lane share a limit; the probe is queued, and NextQueued
// returns it when there is room. If at is not 0, the rate of extra attempts is too high, and the probe is due again at that time.
func (s *Schedule[A]) Admit(key uint32, due, now int64) (start bool, at int64) {
	e := &s.entries[key]
	if e.is(extra) && !e.is(paced) {
		e.set(paced, true)
		if at := s.pacer.next(now, e.times.From(due)); at > now {
			s.timeline.Set(key, at)
			return false, at
		}
	}
	e.due = max(due, s.began)
	l := e.lane()
	if e.is(queued) && e.queue == l {
		return false, 0
	}
	e.set(queued, false) // or it waits in a lane that it no longer belongs to
	if s.limiter.admits(l) {
		return true, 0
	}
	e.set(queued, true)
	e.queue = l
	e.ticket++
	s.limiter.queues[l].push(queuedProbe{key, e.ticket})
	return false, 0
}

// Started is the decision of Start.
type Started struct {
	Lane     Lane          // to be passed to Release
	Lateness time.Duration // delay since the attempt was due
	Next     int64         // regular time of the following attempt
	Counts   bool          // a failure counts
}

// Start counts the attempt of an admitted probe as in flight. If the attempt is late and mayShed is true, Start skips it,
// schedules the probe at its next regular time, and returns false. An engine with too much work can thus keep the remaining
// attempts on time, and an engine that was stopped does not make all attempts at once when it resumes. Extra attempts are never
// skipped, nor are two attempts in a row, so that a probe's period at most doubles.
//
// failing means that the latest attempt that counted has failed. Failures count at regular times, and for attempts requested by
// the handler, but only if they are due at least one period after the previous failure that counted.
func (s *Schedule[A]) Start(key uint32, now int64, mayShed, failing bool) (st Started, ok bool) {
	e := &s.entries[key]
	late := max(0, now-e.due)
	if late > max(int64(minShedAfter), e.times.Period/shedShare) && mayShed && !e.is(shed|extra) {
		e.set(shed, true)
		s.Shed++
		st.Next = e.times.From(now + 1)
		s.At(key, st.Next)
		return st, false
	}
	s.timeline.Remove(key)
	s.Late += uint64(late / e.times.Period)
	st.Lane, st.Lateness = e.lane(), time.Duration(late)
	if regular := e.times.From(e.due); e.is(extra) && regular > now {
		st.Next = regular
		st.Counts = e.is(asked) && !failing
		e.set(close, st.Counts || e.is(close))
	} else {
		st.Next = e.times.after(max(now, e.due))
		st.Counts = !failing || !e.is(close)
		e.set(close, false)
	}
	e.set(spaced, e.is(triggered) || e.is(spaced) && !e.is(fading))
	e.set(fading, e.is(spaced) && !e.is(triggered))
	e.set(shed|extra|asked|triggered|paced|again, false)
	e.set(inflight, true)
	s.limiter.take(e.lane())
	return st, true
}

// Release frees an attempt's place in a lane. Call it once for each Start, after the attempt has finished, whether or not its
// result counts.
func (s *Schedule[A]) Release(l Lane) { s.limiter.release(l) }

// Drop records that the result of a probe's attempt in flight will not count, so that another attempt may start before that
// attempt has finished.
func (s *Schedule[A]) Drop(key uint32) { s.entries[key].set(inflight, false) }

// Finish records that a probe's attempt has finished, and whether it was fast. An attempt that used up its timeout is expected to
// do so again.
func (s *Schedule[A]) Finish(key uint32, wasFast bool) {
	e := &s.entries[key]
	e.set(inflight, false)
	e.set(known, true)
	e.set(fast, wasFast)
}

// Forget records that earlier attempts of a probe do not predict its next one, since its target or handler has changed.
func (s *Schedule[A]) Forget(key uint32) { s.entries[key].set(known, false) }

// Next schedules a probe after an attempt has finished, and returns the due time: the regular time planned that Start returned
// or, if that has passed, the next regular time; or as soon as possible, if Trigger requested an attempt.
func (s *Schedule[A]) Next(key uint32, planned, now int64) (at int64) {
	e := &s.entries[key]
	byHandler := e.is(asked)
	switch at = planned; {
	case e.is(again) && e.earliest(now, byHandler) < planned-slack(byHandler):
		at = e.earliest(now, byHandler)
		s.Extra(key, at)
		e.ask(byHandler)
		e.set(again, false)
		return at
	case e.is(again): // the requested attempt is the regular one
		at = max(planned, e.earliest(now, true))
		e.set(again, false)
	case at < now:
		at = e.times.From(now)
	}
	s.Overrun += uint64((at - planned) / e.times.Period)
	s.At(key, at)
	return at
}

// Trigger schedules an extra attempt of a probe at now or, if an attempt is in flight, after it. The regular times do not change.
// byHandler means that the probe's handler requests the attempt: its failure counts. Attempts are at least probe.MinPeriod apart,
// and consecutive attempts requested by others a tenth of the period, see triggerShare. Trigger returns 0 if the due time has not
// changed.
func (s *Schedule[A]) Trigger(key uint32, now int64, byHandler bool) (at int64) {
	e := &s.entries[key]
	byHandler = byHandler || e.is(asked)
	if e.is(inflight | queued) {
		e.set(again, e.is(inflight))
		e.set(asked, byHandler)
		return 0
	}
	at = e.earliest(now, byHandler)
	if due, ok := s.timeline.Due(key); ok && due <= at+slack(byHandler) {
		e.set(asked, byHandler && e.is(extra))
		return 0
	}
	s.Extra(key, at)
	e.ask(byHandler)
	return at
}

// ask records who requested the next attempt.
func (e *entry) ask(byHandler bool) {
	e.set(asked, byHandler)
	e.set(triggered, !byHandler)
}

// slack returns how much later than a requested attempt a scheduled one may be and still serve as its replacement.
func slack(byHandler bool) int64 {
	if byHandler {
		return 0
	}
	return int64(probe.MinPeriod)
}

// earliest returns the earliest due time, not before now, of another attempt requested by the handler or by another caller.
func (e *entry) earliest(now int64, byHandler bool) int64 {
	gap := int64(probe.MinPeriod)
	if e.is(spaced) && !byHandler {
		gap = max(gap, e.times.Period/triggerShare)
	}
	return max(now, e.due+gap)
}

// NextQueued returns the probe that has waited longest in a lane, if an attempt in that lane may start.
func (s *Schedule[A]) NextQueued(l Lane, now int64) (key uint32, ok bool) {
	for s.limiter.admits(l) {
		q, ok := s.limiter.queues[l].pop()
		if !ok {
			return 0, false
		}
		e := &s.entries[q.key]
		if !e.is(queued) || e.ticket != q.ticket {
			continue // the probe was removed, or has moved to another lane
		}
		e.set(queued, false)
		switch {
		case e.is(inflight):
		case e.lane() != l: // changed by Configure or Forget
			s.timeline.Set(q.key, now)
		default:
			return q.key, true
		}
	}
	return 0, false
}

// Handoff moves a non-blocking attempt in flight to a lane of attempts that need a goroutine. If that lane is full, the attempt
// waits until NextHandoff returns it, and ok is false.
func (s *Schedule[A]) Handoff(key uint32, a A) (l Lane, ok bool) {
	s.limiter.release(NonBlocking)
	l = s.entries[key].workerLane()
	if !s.limiter.admits(l) {
		s.limiter.handoffs[l].push(a)
		return l, false
	}
	s.limiter.take(l)
	return l, true
}

// NextHandoff returns the attempt that has waited longest in a lane since Handoff, if it may start. It then has its place in the
// lane.
func (s *Schedule[A]) NextHandoff(l Lane) (a A, ok bool) {
	if !s.limiter.admits(l) {
		return a, false
	}
	if a, ok = s.limiter.handoffs[l].pop(); ok {
		s.limiter.take(l)
	}
	return a, ok
}

// InFlight returns the number of attempts in flight.
func (s *Schedule[A]) InFlight() int { return s.limiter.workers + s.limiter.nonBlocking }

// Queued returns the number of attempts that wait for an attempt in flight to finish.
func (s *Schedule[A]) Queued() int { return s.limiter.queued() }
