// Package doubt decides whether an engine of a fleet doubts its own verdicts. It has no clock, no I/O and no
// lock: what it returns depends on what it is given only.
//
// An engine that doubts marks its votes as doubtful (package quorum), so that they do not count. It doubts if it is
// not well itself, and if many of its targets fail at once while the targets of others do not. In the second case it does
// not act on targets either: the fault is likelier with its network or its configuration. In the first case
// engine.Doubts decides for each failure.
//
//	doubt.go    Step: from observations to doubts
//	targets.go  Targets: counts the engine's own targets for that
package doubt

import "time"

// share is which part of an engine's targets must turn to failing within window. It is that of Netflix' Eureka, which
// removes no instances while it lacks more than 15 % of the renewals that it expects (renewalPercentThreshold). It is low,
// since what others see must differ besides.
const share = 0.15

// recovery is how long the doubts outlast their cause. It is a second, not a period of probes: on a busy machine causes come
// and go, and a failure that the target has answered is none of the engine's.
const recovery = time.Second

// settle is how long others may take to say what they see: an observation of theirs, and a request to the store. Until then
// the engine does not act, and its votes count.
const settle = 2 * time.Second

// window is the time within which verdicts turn to failing at once. A target that goes down is found to fail
// within half of it by a probe with the default period and threshold.
const window = time.Minute

const (
	// minFailing is how many targets must fail at once. Fewer may well do so together. It is as many as
	// must lack an answer for an engine to count as isolated.
	minFailing = 10

	// minExpected is how many targets would have to fail for others, if they saw the same as this engine.
	// If others have as many targets drawn at random, and the fault is with the targets, then a quarter of
	// that or fewer fail by chance in 1.4 % of cases.
	minExpected = 8

	// An engine begins to doubt if others see fewer failing targets than one of so many that are expected,
	// and ends if they see one of so many. Between these it goes on as it is.
	beginsBelow = 4
	endsFrom    = 2
)

// Sample is a number of targets, and how many of them fail. Targets of which nothing is known do not count.
type Sample struct{ Targets, Failing int }

// Observation is what an engine knows of itself and of others at a time.
type Observation struct {
	Unwell bool   // the engine is degraded or isolated: see engine.Health
	Own    Sample // the targets that this engine probes
	New    int    // how many of those that fail have turned to failing within window

	// Others is what the engines say that do not doubt themselves: about the same targets, or about their
	// own, since shards are drawn at random. HeardAt is until when it is complete; zero while that is not known, since
	// the store is away: then no doubts about what others see begin or end.
	Others  Sample
	HeardAt time.Time
}

// State is what an engine makes of its observations. It is a comparable value. The zero State is that of an
// engine that has observed nothing, and does not act yet.
type State struct {
	Alone    bool // it alone sees many targets fail, and others had the time to say that they do, too
	Doubtful bool // its votes do not count
	MayAct   bool // it may act on its targets

	SuspectAt time.Time // since when it alone sees many targets fail, before others had that time; zero: it does not

	UnwellAt time.Time // when it was observed to be unwell last; zero: never
	AloneAt  time.Time // when Alone was true last; zero: never
}

// Step returns the state after an observation. Observations should be made every second, and at times that
// do not go back.
func Step(s State, o Observation, now time.Time) State {
	switch {
	case s.Alone:
		s.Alone = !endsAlone(o)
	case !beginsAlone(o):
		s.SuspectAt = time.Time{}
	case s.SuspectAt.IsZero():
		s.SuspectAt = now
	case o.HeardAt.Sub(s.SuspectAt) >= settle:
		s.Alone, s.SuspectAt = true, time.Time{}
	}
	if o.Unwell {
		s.UnwellAt = now
	}
	if s.Alone {
		s.AloneAt = now
	}
	s.Doubtful = s.Alone || isWithin(recovery, s.UnwellAt, now)
	s.MayAct = !s.Alone && s.SuspectAt.IsZero() && !isWithin(recovery, s.AloneAt, now)
	return s
}

func isWithin(d time.Duration, at, now time.Time) bool { return !at.IsZero() && now.Sub(at) < d }

// beginsAlone reports whether so many targets have failed at once, and so few of others do, that the engine
// doubts.
func beginsAlone(o Observation) bool {
	if o.HeardAt.IsZero() || o.New < minFailing || float64(o.New) < share*float64(o.Own.Targets) {
		return false
	}
	expected := expectedOf(o.New, o)
	return expected >= minExpected && float64(o.Others.Failing)*beginsBelow <= expected
}

// endsAlone reports whether others see about the same, too few of others are left to tell, or too few
// targets fail. That they have failed for longer than window ends nothing.
func endsAlone(o Observation) bool {
	if o.Own.Failing < minFailing/2 || float64(o.Own.Failing) < share/2*float64(o.Own.Targets) {
		return true
	}
	expected := expectedOf(o.Own.Failing, o)
	return !o.HeardAt.IsZero() && (expected < minExpected/2 || float64(o.Others.Failing)*endsFrom >= expected)
}

// expectedOf returns how many of others' targets would fail if as many of them did as so many of the
// engine's own.
func expectedOf(failing int, o Observation) float64 {
	return float64(failing) / float64(max(o.Own.Targets, 1)) * float64(o.Others.Targets)
}
