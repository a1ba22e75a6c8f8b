// Package schedule decides when attempts start: which probe is due, how many
// attempts may be in flight, how fast first attempts follow each other, and which
// attempts an overloaded engine skips.
//
// It is a plain data structure. It has no clock, no lock and no goroutine: the
// caller passes the time, in nanoseconds, to each call, and makes one call at a
// time. Its test compares it with a slow model that is obviously right.
//
//	schedule.go  Schedule: what is due, and what becomes of it
//	limiter.go   the limit on attempts in flight, with a queue per lane
//	pacer.go     the rate of extra attempts
//	times.go     the regular times of a probe
package schedule

import (
	"time"

	"github.com/sonde-probe/sonde/engine/internal/timeline"
	"github.com/sonde-probe/sonde/probe"
)

const (
	// maxEarly is how much earlier than due a non-blocking attempt may start, so
	// that attempts which are due close together start together: waking up costs
	// as much as such an attempt. Only attempts at regular times start early.
	// Beside HAProxy's checks at 2,000 a second 5 ms came to 1.13 of their CPU, 10
	// ms to 1.05 and 20 ms to 0.95.
	maxEarly = 20 * time.Millisecond

	// earlyShare is the part of a period, one in so many, that maxEarly is at most.
	earlyShare = 50

	// minShedAfter and shedShare say how late an attempt must be for Start to skip it: by one
	// part in so many of its period.
	minShedAfter = 100 * time.Millisecond
	shedShare    = 50

	// triggerShare is the part of a period, one in so many, that an attempt which Trigger's
	// caller has asked for follows the one before at least, if one of the two before was asked
	// for likewise: who asks for each request that fails must not make a load generator of the
	// probe.
	triggerShare = 10
)

// Schedule holds the probes by key, each with the time at which its next attempt
// is due. An attempt goes through it in this order: At or Extra makes the probe due,
// Pop returns it, Admit lets it start, wait or queue, Start counts it as in flight,
// Finish and Release end it, and Next gives the time of the following one.
//
// A is the caller's type for an attempt in flight, which Handoff keeps in a queue.
type Schedule[A any] struct {
	counters

	began    int64 // nothing is late for the time before it
	timeline timeline.Timeline
	pacer    pacer
	limiter  limiter[A]
	entries  []entry // by key
	free     []uint32
}

// counters count attempts that were not made at their regular times.
type counters struct {
	Overrun uint64 // skipped: the probe's attempt before was still in flight
	Late    uint64 // skipped: the engine was more than a period late
	Shed    uint64 // skipped: the engine was late, and the probe was passing
}

// entry is what the schedule knows about one probe.
type entry struct {
	times  Times
	due    int64  // of the attempt in flight, or of the latest one
	ticket uint32 // of its place in a queue; each key counts on, also for other probes
	flags  flags
	queue  Lane // that it has its place in, if it is queued
}

type flags uint16

const (
	nonBlocking flags = 1 << iota // attempts need no goroutine
	extra                         // the next attempt is not at a regular time
	asked                         // likewise, and the probe's handler has asked for it
	triggered                     // likewise, and somebody else has
	spaced                        // somebody else has asked for one of the latest two attempts
	fading                        // likewise, and not for the latest one
	paced                         // the pacer has given the next attempt its time
	close                         // the next regular time may be less than a period after an attempt that counted
	queued                        // waits in the limiter
	inflight                      // an attempt is in flight
	again                         // likewise, and another attempt was asked for
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

// mayStart reports whether an attempt that is due at a time may start now.
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

// New returns a Schedule without probes. Concurrency limits the attempts in flight
// that need a goroutine. StartRate limits extra attempts per second.
func New[A any](concurrency, startRate int) *Schedule[A] {
	return &Schedule[A]{
		limiter: limiter[A]{concurrency: concurrency},
		pacer:   pacer{interval: int64(time.Second) / int64(startRate), burst: int64(pacerBurst)},
	}
}

// Begin says that attempts start from now on: what was due earlier is late since
// then.
func (s *Schedule[A]) Begin(now int64) { s.began = now }

// Add adds a probe and returns its key. It is not due.
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

// Configure changes a probe's regular times. WithoutBlocking says that its attempts never
// block, so that they need no goroutine of their own. The time at which the probe is next
// due stays the same.
func (s *Schedule[A]) Configure(key uint32, times Times, withoutBlocking bool) {
	e := &s.entries[key]
	if e.times.Period != 0 && e.times.Period != times.Period {
		e.set(close, true)
	}
	e.times = times
	e.set(nonBlocking, withoutBlocking)
}

// Replan returns the regular time of the attempt after one that began at a time, if Configure has
// changed the period because of how that ended. After a failure it is a whole period away, so
// that another one counts.
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

// At makes a probe due at one of its regular times.
func (s *Schedule[A]) At(key uint32, at int64) {
	s.entries[key].set(extra|asked|triggered|paced, false)
	s.timeline.Set(key, at)
}

// Extra makes a probe due at a time of its own, as the first attempt on an
// instance is. The pacer may delay it, to the probe's next regular time at most. An
// attempt that starts at a regular time, or after one has passed while it waited, is
// the regular attempt of that time.
func (s *Schedule[A]) Extra(key uint32, at int64) {
	e := &s.entries[key]
	e.set(extra, true)
	e.set(asked|triggered|paced, false)
	s.timeline.Set(key, at)
}

// Cancel makes a probe not due.
func (s *Schedule[A]) Cancel(key uint32) { s.timeline.Remove(key) }

// IsDue reports whether a probe is due at some time.
func (s *Schedule[A]) IsDue(key uint32) bool {
	_, ok := s.timeline.Due(key)
	return ok
}

// First returns when the first probe is due; math.MaxInt64 when none is.
func (s *Schedule[A]) First() (at int64) { return s.timeline.Next() }

// Pop returns the probe that is due first and when it is due, if that is now or so
// soon that its attempt may start early. It is no longer due.
func (s *Schedule[A]) Pop(now int64) (key uint32, due int64, ok bool) {
	key, due, ok = s.timeline.First()
	if !ok || !s.entries[key].mayStart(due, now) {
		return 0, 0, false
	}
	s.timeline.Remove(key)
	return key, due, true
}

// Admit decides whether the attempt of a probe that Pop has returned may start now;
// due is the time that Pop returned. If start is false and at is 0, the lane of the
// attempt is full: attempts of one lane share a limit. The probe is queued, and
// NextQueued returns it when a place is free. If at is not 0, attempts at extra times
// come too fast, and the probe is due again at that time.
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
	e.set(queued, false) // or it waits in a lane that is no longer its own
	if s.limiter.admits(l) {
		return true, 0
	}
	e.set(queued, true)
	e.queue = l
	e.ticket++
	s.limiter.queues[l].push(queuedProbe{key, e.ticket})
	return false, 0
}

// Started is what Start has decided.
type Started struct {
	Lane     Lane          // to be given to Release
	Lateness time.Duration // from when the attempt was due
	Next     int64         // the regular time of the attempt after it
	Counts   bool          // a failure counts
}

// Start counts the attempt of an admitted probe as in flight. It skips the attempt,
// makes the probe due at its next regular time, and returns false when the attempt is late
// and may be shed: so an engine that has too much to do keeps its time with the others,
// and one that was stopped does not attempt everything at once when it goes on. It never
// sheds extra attempts, nor two in a row: a probe's period is doubled at most.
//
// Failing means that the latest attempt that counted has failed. Failures count at
// regular times, and for attempts that the handler has asked for; but only if they are
// due a period or more after the failure that counted before.
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

// Release frees an attempt's place in a lane. It is called once for each Start,
// when the attempt has ended, whether or not its answer counts.
func (s *Schedule[A]) Release(l Lane) { s.limiter.release(l) }

// Drop says that the answer of a probe's attempt in flight will not count, so that
// another attempt may start before it has ended.
func (s *Schedule[A]) Drop(key uint32) { s.entries[key].set(inflight, false) }

// Finish says that a probe's attempt has ended, and whether it was fast: an attempt
// that has used up its timeout is expected to do so again.
func (s *Schedule[A]) Finish(key uint32, wasFast bool) {
	e := &s.entries[key]
	e.set(inflight, false)
	e.set(known, true)
	e.set(fast, wasFast)
}

// Forget says that earlier attempts of a probe say nothing about its next one: it has
// another target or handler.
func (s *Schedule[A]) Forget(key uint32) { s.entries[key].set(known, false) }

// Next makes a probe due after an attempt that has ended, and returns when: at the
// regular time that Start has returned, or, when that has passed, at the next one; at
// once, when Trigger has asked for it.
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
	case e.is(again): // the attempt that was asked for is the regular one
		at = max(planned, e.earliest(now, true))
		e.set(again, false)
	case at < now:
		at = e.times.From(now)
	}
	s.Overrun += uint64((at - planned) / e.times.Period)
	s.At(key, at)
	return at
}

// Trigger makes a probe due at now as an extra attempt, or, when an attempt is in
// flight, after it. The regular times stay as they are. ByHandler means that the
// probe's handler asks for the attempt: its failure counts. Two attempts are
// probe.MinPeriod apart at least, and those that somebody else asks for in a row a tenth of
// the period, see triggerShare.
// At is 0 when the due time has not changed.
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

// ask notes who has asked for the next attempt.
func (e *entry) ask(byHandler bool) {
	e.set(asked, byHandler)
	e.set(triggered, !byHandler)
}

// slack returns how long an attempt that is due anyway may come after one that is asked for,
// and be as good.
func slack(byHandler bool) int64 {
	if byHandler {
		return 0
	}
	return int64(probe.MinPeriod)
}

// earliest returns when another attempt that the handler or somebody else asks for may be
// due, at now or later.
func (e *entry) earliest(now int64, byHandler bool) int64 {
	gap := int64(probe.MinPeriod)
	if e.is(spaced) && !byHandler {
		gap = max(gap, e.times.Period/triggerShare)
	}
	return max(now, e.due+gap)
}

// NextQueued returns the probe that has waited longest in a lane, if an attempt in
// that lane may start.
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
		case e.lane() != l: // Configure or Forget has changed it
			s.timeline.Set(q.key, now)
		default:
			return q.key, true
		}
	}
	return 0, false
}

// Handoff moves a non-blocking attempt in flight to a lane of attempts that need a
// goroutine. Where there is no free place the attempt waits until NextHandoff returns
// it, and ok is false.
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

// NextHandoff returns the attempt that has waited longest in a lane since Handoff,
// if it may start. It has its place in the lane then.
func (s *Schedule[A]) NextHandoff(l Lane) (a A, ok bool) {
	if !s.limiter.admits(l) {
		return a, false
	}
	if a, ok = s.limiter.handoffs[l].pop(); ok {
		s.limiter.take(l)
	}
	return a, ok
}

// InFlight returns how many attempts are in flight.
func (s *Schedule[A]) InFlight() int { return s.limiter.workers + s.limiter.nonBlocking }

// Queued returns how many attempts wait for one in flight to end.
func (s *Schedule[A]) Queued() int { return s.limiter.queued() }
