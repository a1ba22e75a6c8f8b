package execprobe_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// once makes an attempt, and reports whether it is not counted as a failure: it is unknown, or an engine excuses it, since it
// knows to have lost a notable part of the time.
func once(t *testing.T, script string, timeout time.Duration) (r probe.Result, isExcused bool) {
	t.Helper()
	h, err := execprobe.New(execprobe.Config{Command: []string{"/bin/sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	r = h.Probe(ctx, probe.Target{})
	return r, r.Outcome == probe.Unknown || r.Lost > timeout/8
}

func TestACommandThatIsStarvedOfProcessorTimeDoesNotFail(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InCgroup(t, faulttest.Processor(2)) {
		return
	}
	if r, isExcused := once(t, `while :; do :; done`, time.Second); !isExcused {
		t.Errorf("got %v %q %q with %v lost", r.Outcome, r.Reason, r.Detail, r.Lost)
	}
	if r, _ := once(t, `exit 3`, 20*time.Second); r.Outcome != probe.Failure || r.Reason != probe.ReasonExecExit {
		t.Errorf("an answer: got %v %q %q", r.Outcome, r.Reason, r.Detail)
	}
}

func TestACommandThatHangsFailsWhereTheQuotaIsNotUsedUp(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InCgroup(t, faulttest.Processor(90)) {
		return
	}
	if r, isExcused := once(t, `sleep 60`, time.Second); r.Outcome != probe.Failure || r.Reason != probe.ReasonExecTimeout || isExcused {
		t.Errorf("got %v %q %q with %v lost", r.Outcome, r.Reason, r.Detail, r.Lost)
	}
}

// The quota is used up by others, all the time, but the command wants no processor.
func TestACommandThatHangsFailsBesideABusyNeighbour(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InCgroup(t, faulttest.Processor(40)) {
		return
	}
	for range 4 {
		busy := exec.Command("/bin/sh", "-c", `while :; do :; done`)
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = busy.Process.Kill()
			_ = busy.Wait()
		}()
	}
	for range 4 { // what else runs on this machine may starve it for once
		r, isExcused := once(t, `exec sleep 60`, 5*time.Second)
		if r.Outcome != probe.Failure || r.Reason != probe.ReasonExecTimeout {
			t.Fatalf("got %v %q %q with %v lost", r.Outcome, r.Reason, r.Detail, r.Lost)
		}
		if !isExcused {
			return
		}
	}
	t.Error("each of four attempts is excused")
}
