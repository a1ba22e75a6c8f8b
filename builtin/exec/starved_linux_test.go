package execprobe_test

import (
	"context"
	"testing"
	"time"

	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// once makes an attempt, and reports whether it does not count as a failure: it is unknown, or an engine excuses it because the
// handler reports that a quarter of the time was lost, or half of it before an answer.
func once(t *testing.T, script string, timeout time.Duration) (r probe.Result, isExcused bool) {
	t.Helper()
	h, err := execprobe.New(execprobe.Config{Command: []string{"/bin/sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	r = h.Probe(ctx, probe.Target{})
	share := timeout / 4
	if r.Reason == probe.ReasonExecExit {
		share = timeout / 2
	}
	return r, r.Outcome == probe.Unknown || r.Lost > share
}

// failsInTheEnd makes attempts until one counts as a failure: other processes of this machine may excuse some.
func failsInTheEnd(t *testing.T, script string, timeout time.Duration) {
	t.Helper()
	var lost []time.Duration
	for range 8 {
		r, isExcused := once(t, script, timeout)
		lost = append(lost, r.Lost)
		if r.Reason != probe.ReasonExecTimeout && r.Outcome != probe.Unknown {
			t.Fatalf("got %v %q %q with %v lost", r.Outcome, r.Reason, r.Detail, r.Lost)
		}
		if !isExcused {
			return
		}
	}
	t.Errorf("each of eight attempts is excused: %v", lost)
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

// The command does not wait for a processor, but writes as long as it may.
func TestACommandThatWritesWithoutEndFails(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InCgroup(t, faulttest.Processor(20)) {
		return
	}
	for name, script := range map[string]string{"to both": `yes & yes >&2`, "bytes": `exec cat /dev/zero`} {
		t.Run(name, func(t *testing.T) {
			testsync.Longer(t, "a flood", 2*time.Second, time.Minute, func(timeout time.Duration) bool {
				r, isExcused := once(t, script, timeout)
				if r.Outcome == probe.Failure && r.Reason != probe.ReasonExecTimeout {
					t.Errorf("got %v %q %q with %v lost", r.Outcome, r.Reason, r.Detail, r.Lost)
				}
				return !isExcused
			})
		})
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

// Others use up the quota all the time, but the command needs no processor time.
func TestACommandThatHangsFailsBesideABusyNeighbour(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InCgroup(t, faulttest.Processor(40)) {
		return
	}
	faulttest.Busy(t, 4)
	failsInTheEnd(t, `exec sleep 60`, 5*time.Second)
}

// A command with its own timeout reports a failure, because it waited for a processor.
func TestACommandThatGivesUpSinceItWasStarvedDoesNotFail(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InCgroup(t, faulttest.Processor(2)) {
		return
	}
	const work = `i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; `
	for name, script := range map[string]string{"by an exit status": work + `exit 7`, "by a late success": work + `exit 0`} {
		t.Run(name, func(t *testing.T) {
			testsync.Longer(t, "the exit", time.Second, time.Minute, func(timeout time.Duration) bool {
				r, isExcused := once(t, script, timeout)
				if r.Reason == probe.ReasonExecExit && r.Lost == 0 || r.Outcome == probe.Failure && !isExcused && r.Reason != probe.ReasonExecExit {
					t.Errorf("got %v %q %q with %v of %v lost", r.Outcome, r.Reason, r.Detail, r.Lost, timeout)
				}
				return r.Reason != probe.ReasonExecTimeout
			})
		})
	}
}

// The command's processes wait for each other.
func TestACommandThatIsItsOwnLoadFails(t *testing.T) {
	tier.Slow(t)
	for name, script := range map[string]string{
		"processes":       `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do while :; do :; done & done; wait`,
		"short processes": `busy() { while :; do /bin/true; done; }; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do busy & done; wait`,
		"more processes than are read": `i=0; while [ $i -lt 150 ]; do i=$((i+1)); sleep 60 & done; while :; do :; done & while :; do :; done & ` +
			`while :; do :; done & wait`,
	} {
		t.Run(name, func(t *testing.T) { failsInTheEnd(t, script, 2*time.Second) })
	}
}

func TestACommandInAControlGroupOfItsOwnThatStarvesItFails(t *testing.T) {
	tier.Slow(t)
	join := faulttest.Group(t, faulttest.Processor(3))
	failsInTheEnd(t, `echo $$$$ >`+join+`; while :; do :; done`, 2*time.Second)
	failsInTheEnd(t, `sh -c 'echo $$$$ >`+join+`; while :; do :; done'`, 2*time.Second)
}
