package verdict_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// TestRestoredProbeDecidesAsIfItHadGoneOn saves the states of random walks, restores each under another rule, and compares its
// verdicts with those of a probe whose rule was changed while it ran.
func TestRestoredProbeDecidesAsIfItHadGoneOn(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	for range 20_000 {
		rule := ruleFrom(random(4))
		state := walked(rule, verdict.State{}, random(30))
		other := ruleFrom(append([]byte{byte(rule.Kind - probe.Startup)}, random(3)...))
		restored, err := verdict.Restore(other, state)
		if err != nil {
			t.Fatalf("state %+v of rule %+v: %v", state, rule, err)
		}
		if !isBelow(other, restored) {
			t.Fatalf("state %+v restored as %+v, whose run has met a threshold of %+v", state, restored, other)
		}
		compare(t, other, state, restored, random(40))
		compare(t, rule, state, verdict.Settled(rule, state), random(40))
		if t.Failed() {
			return
		}
	}
}

// compare passes the same events to a probe that resumes from state a and to one that resumes from b. Both must publish the same.
func compare(t *testing.T, r probe.Rule, a, b verdict.State, events []byte) {
	goneOn, restored := a, b
	for now := t0; len(events) >= 2; events = events[2:] {
		now = now.Add(time.Second)
		event := eventFrom(events[0], events[1], now)
		var first, second verdict.Next
		goneOn, first = verdict.Step(r, goneOn, event, now)
		restored, second = verdict.Step(r, restored, event, now)
		if first != second || published(goneOn) != published(restored) {
			t.Errorf("rule %+v, from %+v and %+v:\n%+v %+v\n%+v %+v", r, a, b, goneOn, first, restored, second)
			return
		}
	}
}

// walked returns the state after the given events.
func walked(r probe.Rule, s verdict.State, events []byte) verdict.State {
	for now := t0; len(events) >= 2; events = events[2:] {
		now = now.Add(time.Second)
		s, _ = verdict.Step(r, s, eventFrom(events[0], events[1], now), now)
	}
	return s
}

// isBelow reports whether the run is below its threshold, so that no attempt before the next one can decide.
func isBelow(r probe.Rule, s verdict.State) bool {
	switch {
	case r.Policy == probe.PolicyEvidence:
		return true
	case s.Last == probe.Success && s.Verdict != probe.Passing:
		return s.Run < r.SuccessThreshold
	case s.Last == probe.Failure && s.Verdict != probe.Failing:
		return s.Run < r.FailureThreshold
	}
	return true
}

// published returns s without its counts.
func published(s verdict.State) verdict.State {
	s.Last, s.Policy, s.Run, s.Errors = 0, 0, 0, 0
	return s
}

func TestSettledStateStaysTheSameWhileNothingChanges(t *testing.T) {
	s := after(probe.Passing, probe.Success, 2)
	want := verdict.Settled(readiness, s)
	for range 5 {
		s, _ = verdict.Step(readiness, s, attempted(running("a"), probe.Success), t0)
		s, _ = verdict.Step(readiness, s, attempted(running("a"), probe.Unknown), t0)
		if got := verdict.Settled(readiness, s); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
	s, _ = verdict.Step(readiness, s, attempted(running("a"), probe.Failure), t0)
	if got := verdict.Settled(readiness, s); got == want || got.Run != 1 {
		t.Errorf("after a failure: got %+v", got)
	}
}

func TestImpossibleStatesAreNotRestored(t *testing.T) {
	held := onHold(after(probe.Failing, probe.Failure, 0))
	down := after(probe.Passing, probe.Success, 1)
	down.Down = true
	for name, c := range map[string]struct {
		rule  probe.Rule
		state verdict.State
	}{
		"an unknown verdict":              {readiness, verdict.State{Instance: "a", Verdict: 3}},
		"a run of warnings":               {readiness, after(probe.Passing, probe.Warning, 1)},
		"a negative run":                  {readiness, after(probe.Passing, probe.Success, -1)},
		"negative errors":                 {readiness, broken(after(probe.Passing, probe.Success, 1), -1)},
		"a verdict without an instance":   {readiness, verdict.State{Verdict: probe.Passing}},
		"a run of nothing":                {readiness, after(probe.Passing, probe.Unknown, 1)},
		"an outcome without a run":        {readiness, after(probe.Passing, probe.Success, 0)},
		"readiness on hold":               {readiness, held},
		"liveness that passes on hold":    {liveness, onHold(after(probe.Passing, probe.Success, 0))},
		"startup on hold and undecided":   {startup, onHold(after(probe.Undecided, probe.Success, 0))},
		"a hold with a run":               {liveness, onHold(after(probe.Failing, probe.Failure, 1))},
		"a hold before 20 points":         {liveness, verdict.State{Instance: "a", Verdict: probe.Failing, Last: probe.Failure, Policy: probe.PolicyEvidence, Run: 5, OnHold: true}},
		"a passing probe of what is down": {readiness, down},
		"an unknown policy":               {readiness, verdict.State{Instance: "a", Verdict: probe.Passing, Last: probe.Success, Policy: 2}},
		"too high a score":                {readiness, verdict.State{Instance: "a", Verdict: probe.Failing, Last: probe.Failure, Policy: probe.PolicyEvidence, Run: 41}},
		"a score that has decided":        {readiness, verdict.State{Instance: "a", Verdict: probe.Passing, Last: probe.Failure, Policy: probe.PolicyEvidence, Run: 20}},
		"evidence of a startup":           {startup, verdict.State{Instance: "a", Last: probe.Failure, Policy: probe.PolicyEvidence, Run: 5}},
	} {
		if got, err := verdict.Restore(c.rule, c.state); err == nil || got != (verdict.State{}) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}
