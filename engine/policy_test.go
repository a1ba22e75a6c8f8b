package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// weighed returns a probe with the policy "evidence" and a period of one second.
func weighed(h probe.Handler) probe.Probe {
	p := with(h)
	p.Rule = probe.Rule{Policy: probe.PolicyEvidence, Period: time.Second}
	return p
}

func TestEvidenceFailsATargetThatFailsEveryThirdAttempt(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		apply(t, e, probe.Set{readiness: weighed(h)})
		e.Report(instance("1"))
		pass(10 * time.Second)
		want(t, e, readiness, probe.Passing)
		for n := 0; n < 19; n++ {
			h.say([]probe.Outcome{probe.Failure, probe.Success, probe.Success}[n%3])
			pass(time.Second)
		}
		if st := status(t, e, readiness); st.Verdict != probe.Failing || st.Run != 20 || st.Threshold() != 20 || !st.Decided {
			t.Errorf("after 19 attempts, of which every third failed: %+v", st)
		}
		h.say(probe.Success)
		pass(19 * time.Second)
		want(t, e, readiness, probe.Failing)
		pass(time.Second)
		want(t, e, readiness, probe.Passing)
		got := describe(e.Records().History("web"))
		if want := []string{"readiness failing after 0, blind false, not_ready:  6 of the last 27 attempts failed", "readiness passing after 0, blind false, ready"}; !slices.Equal(got, want) {
			t.Errorf("got the history\n%s", strings.Join(got, "\n"))
		}
		for _, past := range e.Records().History("web") {
			if past.Policy != probe.PolicyEvidence {
				t.Errorf("%+v has not the policy by which it was decided", past)
			}
		}
	})
}

func TestAnotherPolicyStartsAnotherCountAndKeepsTheVerdict(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		runs := with(h)
		runs.Rule = probe.Rule{Period: time.Second}
		apply(t, e, probe.Set{readiness: runs})
		e.Report(instance("1"))
		pass(10 * time.Second)
		h.say(probe.Failure)
		pass(2 * time.Second)
		apply(t, e, probe.Set{readiness: weighed(h)})
		if st := status(t, e, readiness); st.Verdict != probe.Passing || st.Run != 0 {
			t.Errorf("after the change: %+v", st)
		}
		pass(3 * time.Second)
		want(t, e, readiness, probe.Passing)
		pass(time.Second)
		want(t, e, readiness, probe.Failing)
		apply(t, e, probe.Set{readiness: runs})
		want(t, e, readiness, probe.Failing)
		h.say(probe.Success)
		pass(time.Second)
		want(t, e, readiness, probe.Passing)
	})
}

// A recovering readiness probe is known to fail: gateways do not treat it as one that has not been attempted.
func TestEvidenceGoesOnInTheNextEngine(t *testing.T) {
	var memory engine.Memory
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Failure)
		apply(t, e, probe.Set{readiness: weighed(h)})
		e.Report(instance("1"))
		pass(10 * time.Second)
		h.say(probe.Success)
		pass(5 * time.Second)
		memory, _ = e.Snapshot(readiness)
	})
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		id := readiness
		_, err := e.Change(engine.Change{Set: probe.Set{id: weighed(says(probe.Success))}, Memories: map[probe.ID]engine.Memory{id: memory}})
		if err != nil {
			t.Fatal(err)
		}
		e.Report(instance("1"))
		if st := status(t, e, id); st.Verdict != probe.Failing || !st.Decided || st.Run != 15 {
			t.Errorf("at the start: %+v", st)
		}
		pass(14 * time.Second)
		want(t, e, id, probe.Failing)
		pass(time.Second + time.Millisecond)
		want(t, e, id, probe.Passing)
	})
}
