package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

// slot is one existing probe. There may be a million slots, so a slot is small: times are nanoseconds on the engine's clock, with
// 0 for none; data that many probes share or few probes have is behind a pointer or in a map; and the order of the fields avoids
// padding.
type slot struct {
	target *target
	name   string               // in the probe's ID
	spec   atomic.Pointer[spec] // replaced by the scheduler for Apply, with mu held

	mu         sync.Mutex // guards the fields below: the published state of the probe
	address    string     // of the target
	changes    uint64
	state      verdict.State
	since      int64         // when the verdict was published
	next       int64         // when the next attempt is due; 0 if none is due
	result     *probe.Result // nil before the first result; read and written in place
	resultAt   int64
	attempts   [4]uint64
	rare       *rare // nil if the probe has no rare data
	removed    bool
	attempting bool // an attempt is in flight
	decided    bool // attempts on the instance have decided a verdict
	marks      bits
	waitReason verdict.WaitReason

	kind probe.Kind // in the probe's ID; immutable

	// scheduler.mu guards the fields below.
	answered responders // who responded to the latest attempt that was not ignored, or is expected to after a restore
	missing  responders // who failed to respond to the latest attempt; the target before the first attempt
	flags    bits
	peer     health.Peer // peer of the host that the handler connects to; 0 for this machine, or if isolation is not checked
	key      uint32      // in the schedule
	inflight *attempt    // attempt whose result counts, or nil
}

// bits is a set of facts about a probe, one bit each.
type bits uint8

// The marks of a slot, which are published.
const (
	markBlind   bits = 1 << iota // attempts cannot be made: see verdict.Blinds
	markWarned                   // the probe passes but warns: see verdict.Warnings
	markExtra                    // a failure of the attempt in flight, or else of the latest attempt, does not count
	markProven                   // an attempt has succeeded with the probe's current handler, rule and target
	markRefuted                  // with these, an attempt has failed and none has succeeded
)

// The flags of a slot, which only the scheduler uses.
const (
	resumed         bits = 1 << iota // the probe resumes an earlier run; until its instance is reported
	failureAnswered                  // the latest failure is a response of the target
	ignored                          // the latest attempt was ignored, since the engine was cut off
	unknownLogged                    // an attempt that could not be made was logged since the last verdict
)

func (b bits) has(one bits) bool { return b&one != 0 }

func (b *bits) set(one bits, on bool) {
	if *b &^= one; on {
		*b |= one
	}
}

// rare has the data that few probes have.
type rare struct {
	gauge Gauge      // for Watch
	took  *Histogram // durations of successes, for the kubelet's compatibility; otherwise nil

	recent   *recent   // nil unless latencies were requested lately
	observed *observed // by gateways; nil before the first failure
	fault    *fault    // nil before the first fault on the instance
	warnings verdict.Warnings
	outcomes *outcomes // nil while slot.attempts has the same information

	// scheduler.mu guards the fields below.
	lost     int64          // the monitor's lost time at the end of the latest attempt of a probe.StatefulHandler; negative if unknown
	level    *verdict.Level // nil unless Rule.WarnOnRise is set and an attempt has passed
	restarts *restarts      // nil unless Rule.MaxRestarts is set and an attempt has passed
	traffic  []traffic      // gateways' reports about the target; only for its first readiness probe
	waived   uint8          // number of consecutive waived failures, up to maxWaived
	sought   sought
}

// makeRare returns the rare data of the probe, and creates it if necessary. It needs mu.
func (s *slot) makeRare() *rare {
	if s.rare == nil {
		s.rare = &rare{lost: -1}
		if !s.removed {
			s.rare.gauge.set(s.state.Verdict)
		}
	}
	return s.rare
}

// noRare stands for the rare data of a probe that has none.
var noRare = rare{lost: -1}

// currentRare returns the rare data of the probe. If the probe has none, it returns noRare, which must not be modified.
func (s *slot) currentRare() *rare {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rare == nil {
		return &noRare
	}
	return s.rare
}

// addRare is currentRare for callers that modify the rare data: it creates the data if necessary.
func (s *slot) addRare() *rare {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.makeRare()
}

// keepDurations starts to record the durations of successes if c is the kubelet's compatibility, and otherwise discards them.
func (s *slot) keepDurations(c probe.Compatibility) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c != probe.Kubelet && s.rare != nil:
		s.rare.took = nil
	case c == probe.Kubelet && s.makeRare().took == nil:
		s.rare.took = newHistogram()
	}
}

func (s *slot) id() probe.ID { return probe.ID{Target: s.target.name, Kind: s.kind, Name: s.name} }

// period returns the interval between two attempts according to a rule, in the current state.
func (s *slot) period(r *probe.Rule) time.Duration {
	if r.StartingPeriod == 0 && r.FailingPeriod == 0 {
		return r.Period
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return verdict.Period(*r, s.state, s.decided)
}

// setNext publishes when the next attempt is due.
func (s *slot) setNext(at int64) {
	s.mu.Lock()
	s.next = at
	s.mu.Unlock()
}

// setInflight sets the attempt whose result counts, or nil, and returns the target's address.
func (s *slot) setInflight(a *attempt) (address string) {
	s.inflight = a
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempting = a != nil; s.attempting {
		s.next = 0
		s.marks.set(markExtra, !a.counts)
	}
	return s.address
}

// currentAddress returns the address of the probe's target.
func (s *slot) currentAddress() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address
}

// currentWaitReason returns why the probe currently makes no attempts.
func (s *slot) currentWaitReason() verdict.WaitReason {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waitReason
}

// currentVerdict returns the published verdict.
func (s *slot) currentVerdict() probe.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Verdict
}

// publishedAt returns when the verdict was published.
func (s *slot) publishedAt() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}

// hasPassed reports whether the probe passes on the given instance.
func (s *slot) hasPassed(instance string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Instance == instance && s.state.Verdict == probe.Passing
}

// hasDecided reports whether attempts on the given instance have decided the verdict: a new instance is not ready before its
// first verdict. It needs mu.
func (s *slot) hasDecided(instance string) bool {
	concluded := s.decided || verdict.Concluded(s.spec.Load().rule, s.state) // an earlier engine may have concluded it
	return s.state.Instance == instance && s.state.Verdict != probe.Undecided && concluded
}

// onlyWarns reports whether a failing probe merely makes its target degraded.
func (s *slot) onlyWarns() bool { return s.spec.Load().rule.Effect == probe.EffectWarn }

// hasFailed reports whether attempts have determined that an instance fails.
func (s *slot) hasFailed(instance string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Verdict == probe.Failing && s.hasDecided(instance) && !s.onlyWarns()
}

// record publishes the result of an attempt. It needs mu.
func (s *slot) record(res *probe.Result, now int64) {
	if s.result == nil {
		s.result = new(probe.Result)
	}
	*s.result, s.resultAt = *res, now
	s.attempts[res.Outcome]++
	if isFault(&s.spec.Load().rule, res) {
		s.noteFault(fault{now, res.Reason, res.Detail, res.Outcome})
	}
	if s.rare != nil && s.rare.took != nil && passed(res) {
		s.rare.took.add(res.Took)
	}
	if s.rare != nil && s.rare.recent != nil && res.Outcome != probe.Unknown && !s.rare.recent.add(res.Took, now) {
		s.rare.recent = nil
	}
}

// warn updates the warnings after an attempt, or clears them if the probe does not pass or has a new instance. It needs mu.
func (s *slot) warn(r *probe.Rule, o probe.Outcome, isOther bool) {
	switch {
	case s.kind == probe.Startup || s.rare == nil && o != probe.Warning:
	case isOther || s.state.Verdict != probe.Passing:
		s.setWarnings(verdict.Warnings{})
	default:
		s.setWarnings(s.makeRare().warnings.After(r, o))
	}
}

// setWarnings needs mu.
func (s *slot) setWarnings(w verdict.Warnings) {
	s.marks.set(markWarned, w.Warns)
	if s.rare != nil || w != (verdict.Warnings{}) {
		s.makeRare().warnings = w
	}
}

// publish records and publishes a change of the verdict or the instance. It needs mu.
func (s *slot) publish(now int64) {
	s.since = now
	s.changes++
	if s.rare != nil {
		s.rare.gauge.set(s.state.Verdict)
	}
}

// passed reports whether an attempt has succeeded, possibly with a warning.
func passed(res *probe.Result) bool {
	return res.Outcome == probe.Success || res.Outcome == probe.Warning
}

// fill copies the state of a probe to st, which must be zero.
func (s *slot) fill(st *Status, c *clock.Clock) {
	st.ID.Target, st.ID.Kind, st.ID.Name = s.target.name, s.kind, s.name
	sp := s.spec.Load()
	st.Rule, st.HandlerName, st.Settings, st.Labels = sp.rule, sp.handlerName, sp.settings, sp.target.Labels
	s.mu.Lock()
	st.Instance, st.Verdict, st.Last = s.state.Instance, s.state.Verdict, s.state.Last
	switch {
	case s.state.Policy != sp.rule.Policy: // no outcome has counted since the policy changed
	case s.state.Policy == probe.PolicyEvidence:
		st.Run = s.state.Score()
	default:
		st.Run = s.state.Run
	}
	st.Errors, st.OnHold, st.WaitReason = s.state.Errors, s.state.OnHold, s.waitReason
	st.Changes, st.Attempts, st.Attempting, st.Extra = s.changes, s.attempts, s.attempting, s.marks.has(markExtra)
	if s.rare != nil && s.rare.observed != nil {
		st.Ejection = s.rare.observed.ejection
	}
	st.Tried, st.Definition = s.marks.tried(), sp.proof
	st.Decided, st.Blind = s.decided, s.marks.has(markBlind)
	st.Warned = s.marks.has(markWarned) || st.Decided && st.Verdict == probe.Failing && st.Rule.Effect == probe.EffectWarn
	if s.result != nil {
		st.Result = *s.result
	}
	st.Fault = s.fault(c)
	since, next, resultAt := s.since, s.next, s.resultAt
	s.mu.Unlock()
	st.Since, st.Next, st.ResultAt = c.Time(since), c.Time(next), c.Time(resultAt)
}
