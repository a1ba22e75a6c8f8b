package verdict_test

import (
	"testing"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

func TestARenewedProbeStartsAgainAndKeepsItsVerdict(t *testing.T) {
	down := after(probe.Failing, probe.Success, 1)
	down.Down = true
	stillDown := after(probe.Failing, probe.Unknown, 0)
	stillDown.Down = true
	cases := []struct {
		name        string
		kind        probe.Kind
		state, want verdict.State
	}{
		{"nothing yet", probe.Readiness, verdict.State{}, verdict.State{}},
		{"the run and the errors are forgotten", probe.Readiness,
			broken(after(probe.Passing, probe.Failure, 2), 4), after(probe.Passing, probe.Unknown, 0)},
		{"an instance that has started stays started", probe.Startup,
			onHold(after(probe.Passing, probe.Success, 0)), onHold(after(probe.Passing, probe.Unknown, 0))},
		{"a failed startup tries again", probe.Startup,
			onHold(after(probe.Failing, probe.Failure, 0)), after(probe.Failing, probe.Unknown, 0)},
		{"a failed liveness tries again", probe.Liveness,
			onHold(after(probe.Failing, probe.Failure, 0)), after(probe.Failing, probe.Unknown, 0)},
		{"what does not run still does not", probe.Readiness, down, stillDown},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := verdict.Renew(c.kind, c.state); got != c.want {
				t.Errorf("got %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestWaitReasonsAreReadBack(t *testing.T) {
	for r := verdict.NotWaiting; r <= verdict.Preparing; r++ {
		text, _ := r.MarshalText()
		back := verdict.WaitReason(99)
		if err := back.UnmarshalText(text); err != nil || back != r {
			t.Errorf("%q was read back as %v, %v", text, back, err)
		}
	}
	if got := verdict.WaitReason(99).String(); got != "invalid(99)" {
		t.Errorf("WaitReason(99).String() = %q", got)
	}
	if err := new(verdict.WaitReason).UnmarshalText([]byte("nap")); err == nil {
		t.Error("wait reason \"nap\" was accepted")
	}
}
