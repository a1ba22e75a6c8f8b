package engine_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// outcomesOf returns the outcomes of a probe as text.
func outcomesOf(e *engine.Engine, id probe.ID) string {
	for _, one := range e.Records().Outcomes(id.Target) {
		if one.ID == id {
			return probe.FormatOutcomes(one.Runs)
		}
	}
	return ""
}

func TestOutcomesAreRememberedThatHaveCounted(t *testing.T) {
	var changed atomic.Int32
	bubble(t, engine.Config{Recorded: func(_ string, r engine.Record) {
		if r == engine.RecordOutcomes {
			changed.Add(1)
		}
	}}, func(t *testing.T, e *engine.Engine) {
		ready := says(probe.Failure)
		p := with(ready)
		p.Rule.Period = time.Second
		expect := func(want string) {
			t.Helper()
			if got := outcomesOf(e, readiness); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		apply(t, e, probe.Set{readiness: p})
		if got := e.Records().Outcomes("web"); got != nil {
			t.Errorf("a probe without attempts has %v", got)
		}
		e.Report(instance("1"))
		pass(time.Microsecond) // the first attempt is outside the regular times
		expect("")
		ready.give(probe.Succeed(""))
		pass(10 * time.Second)
		expect("S10")
		for _, next := range []struct {
			result  probe.Result
			seconds int
			want    string
		}{
			{probe.Fail(probe.ReasonHTTPStatus, "status 503"), 2, "S10 F2"},
			{probe.Result{Outcome: probe.Warning}, 1, "S10 F2 W1"},
			{probe.Broken("plugin.trap", "unreachable"), 3, "S10 F2 W1 U3"},
			{probe.Broken(probe.ReasonResources, "no descriptors"), 3, "S10 F2 W1 U3"}, // a problem of the engine itself
			{probe.Succeed(""), 40, "S10 F2 W1 U3 S40"},
		} {
			ready.give(next.result)
			pass(time.Duration(next.seconds) * time.Second)
			expect(next.want)
		}
		if n := changed.Load(); n != 7 { // five runs, two of which were extended
			t.Errorf("%d changes were told", n)
		}
		p.Target.Address = "10.0.0.8"
		apply(t, e, probe.Set{readiness: p})
		expect("S1") // at the other address
	})
}

func TestAProbeThatAlwaysSucceedsHasItsOutcomes(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		p := with(says(probe.Success))
		p.Rule.Period = time.Second
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("1"))
		pass(100*time.Second + time.Millisecond)
		if got := outcomesOf(e, readiness); got != "S101" && got != "S100" {
			t.Errorf("got %q", got)
		}
		for _, target := range e.Records().AllOutcomes() {
			t.Errorf("%s is to be stored", target)
		}
	})
}

func TestTheOldestOutcomesAreForgotten(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		p := with(says(probe.Success))
		p.Rule.Period = time.Second
		apply(t, e, probe.Set{readiness: p})
		var runs []probe.OutcomeRun
		for i := range engine.MaxOutcomes {
			runs = append(runs, probe.OutcomeRun{Outcome: probe.Success, Attempts: uint64(100 + i)}, probe.OutcomeRun{Outcome: probe.Failure, Attempts: 2})
		}
		e.Records().RestoreOutcomes(readiness, runs)
		text := outcomesOf(e, readiness)
		if n := len(strings.Fields(text)); n < engine.MaxOutcomes/3 || n > engine.MaxOutcomes {
			t.Errorf("%d runs are remembered", n)
		}
		last := fmt.Sprintf("S%d F2", 99+engine.MaxOutcomes)
		if !strings.HasSuffix(text, last) {
			t.Errorf("got %q, want the end %q", text, last)
		}
		e.Report(instance("1"))
		pass(3 * time.Second)
		if got := outcomesOf(e, readiness); !strings.Contains(got, last+" S") {
			t.Errorf("got %q after %q", got, last)
		}
		e.Records().RestoreOutcomes(readiness, []probe.OutcomeRun{{Outcome: 9, Attempts: 1}})
		e.Records().RestoreOutcomes(liveness, runs)
		for _, target := range e.Records().AllOutcomes() {
			if all := e.Records().Outcomes(target); target != "web" || len(all) != 1 {
				t.Errorf("%s has %v", target, all)
			}
		}
	})
}
