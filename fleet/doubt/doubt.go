// Package doubt decides whether an engine of a fleet doubts its own verdicts. It has no clock, I/O or locks: its results
// depend only on the arguments.
//
// An engine that doubts marks its votes as doubtful (package quorum), so that they do not count. It doubts if it is not
// well itself, or if many of its targets fail at once while the targets of other engines do not. In the second case it
// does not act on targets either, since its own network or configuration is the likelier cause. In the first case
// engine.Doubts decides for each failure.
//
//	doubt.go    Step: from observations to doubts
//	targets.go  Targets: counts the engine's own targets for observations
package doubt

import "time"

// share is the part of an engine's targets that must turn to failing within window. It is the value of Netflix' Eureka,
// which removes no instances while more than 15 % of the expected renewals are missing (renewalPercentThreshold). It may
// be low, since in addition the observations of others must differ.
const share = 0.15

// recovery is how long doubts outlast their cause. It is one second, not a period of probes: on a busy machine causes
// come and go, and a failure with a response from the target is not the engine's fault.
const recovery = time.Second

// settle is how long others may take to publish their observations: the interval of their observations and a request to
// the store. Until then the engine does not act, and its votes count.
const settle = 2 * time.Second

// window is the time within which verdicts count as having turned to failing at once. A probe with the default period
// and threshold detects a failed target within half of it.
const window = time.Minute

const (
	// minFailing is the number of targets that must fail at once; a smaller number may well fail together. It equals the
	// number of targets without a response that makes an engine count as isolated.
	minFailing = 10

	// minExpected is the number of targets of others that would have to fail if others saw the same as this engine. If the
	// fault is with the targets, and the others have a random sample of this size, then a quarter of it or less fails by
	// chance in 1.4 % of cases.
	minExpected = 8

	// An engine begins to doubt if the others see at most 1/beginsBelow of the expected number of failing targets, and stops
	// if they see at least 1/endsFrom of it. In between nothing changes.
	beginsBelow = 4
	endsFrom    = 2
)

// Sample is a number of targets, and how many of them fail. Targets without a verdict do not count.
type Sample struct{ Targets, Failing int }

// Observation is what an engine knows about itself and others at one time.
type Observation struct {
	Unwell bool   // the engine is degraded or isolated: see engine.Health
	Own    Sample // the targets that this engine probes
	New    int    // number of failing targets that have turned to failing within window

	// Others is the sum of the samples of engines that do not doubt themselves: of the same targets, or of their own, since
	// shards are drawn at random. It is complete up to HeardAt, which is zero while the store is unreachable: then Others
	// neither begins nor ends doubts.
	Others  Sample
	HeardAt time.Time
}

// State is an engine's conclusion from its observations. It is comparable. The zero State is that of an engine that has
// not observed anything, and does not act yet.
type State struct {
	Alone    bool // it alone sees many targets fail, and others have had time to report the same
	Doubtful bool // its votes do not count
	MayAct   bool // it may act on its targets

	SuspectAt time.Time // since when it alone sees many targets fail, before others have had that time; zero: it does not

	UnwellAt time.Time // when it was last observed to be unwell; zero: never
	AloneAt  time.Time // when Alone was last true; zero: never
}

// Step returns the state after an observation. Observations should be made every second, at times that never go back.
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

// beginsAlone reports whether enough targets have failed at once, and few enough of the others' targets, for the engine
// to doubt.
func beginsAlone(o Observation) bool {
	if o.HeardAt.IsZero() || o.New < minFailing || float64(o.New) < share*float64(o.Own.Targets) {
		return false
	}
	expected := expectedOf(o.New, o)
	return expected >= minExpected && float64(o.Others.Failing)*beginsBelow <= expected
}

// endsAlone reports whether others see about the same, have too few targets left to judge, or too few targets fail here.
// Failures that are older than window still count.
func endsAlone(o Observation) bool {
	if o.Own.Failing < minFailing/2 || float64(o.Own.Failing) < share/2*float64(o.Own.Targets) {
		return true
	}
	expected := expectedOf(o.Own.Failing, o)
	return !o.HeardAt.IsZero() && (expected < minExpected/2 || float64(o.Others.Failing)*endsFrom >= expected)
}

// expectedOf returns how many of the others' targets would fail if the same share of them failed as of the engine's own,
// of which failing fail.
func expectedOf(failing int, o Observation) float64 {
	return float64(failing) / float64(max(o.Own.Targets, 1)) * float64(o.Others.Targets)
}
