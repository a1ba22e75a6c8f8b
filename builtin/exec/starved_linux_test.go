package execprobe_test

import (
	"os/exec"
	"testing"
	"time"

	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// once makes an attempt as an engine does whose loop was never late.
func once(t *testing.T, script string, timeout time.Duration) probe.Result {
	t.Helper()
	h, err := execprobe.New(execprobe.Config{Command: []string{"/bin/sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	return engine.Once(t.Context(), probe.Probe{Rule: probe.Rule{Kind: probe.Liveness, Period: timeout, Timeout: timeout}, Handler: h})
}

func TestACommandThatIsStarvedOfProcessorTimeDoesNotFail(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InCgroup(t, faulttest.Processor(2)) {
		return
	}
	r := once(t, `while :; do :; done`, time.Second)
	if r.Outcome != probe.Unknown || r.Reason != probe.ReasonStalled {
		t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
	}
	if r := once(t, `exit 3`, 20*time.Second); r.Outcome != probe.Failure || r.Reason != probe.ReasonExecExit {
		t.Errorf("an answer: got %v %q %q", r.Outcome, r.Reason, r.Detail)
	}
}

func TestACommandThatHangsFailsWhereTheQuotaIsNotUsedUp(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InCgroup(t, faulttest.Processor(90)) {
		return
	}
	if r := once(t, `sleep 60`, time.Second); r.Outcome != probe.Failure || r.Reason != probe.ReasonExecTimeout {
		t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
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
	if r := once(t, `exec sleep 60`, 5*time.Second); r.Outcome != probe.Failure || r.Reason != probe.ReasonExecTimeout {
		t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
	}
}
