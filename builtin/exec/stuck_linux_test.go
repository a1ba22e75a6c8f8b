package execprobe

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestTooManyCommandsThatCannotBeKilledAreAFailure(t *testing.T) {
	h := newHandler(t, command.Plan.Run, sh(`exit 0`))
	dead := make(chan struct{})
	for range maxStuck {
		h.countStuck(dead)
	}
	testsync.Until(t, "the count of the commands", func() bool { return len(h.stuck) == maxStuck })
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if r := h.Probe(ctx, probe.Target{}); r.Outcome != probe.Failure || r.Reason != probe.ReasonExecTimeout {
		t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
	}
	waiting := make(chan probe.Result)
	for range 3 {
		go func() { waiting <- h.Probe(t.Context(), probe.Target{}) }()
	}
	close(dead)
	for range 3 {
		if r := testsync.Receive(t, "the attempts that wait", waiting); r.Outcome != probe.Success {
			t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
		}
	}
	if r := h.Probe(t.Context(), probe.Target{}); r.Outcome != probe.Success {
		t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
	}
}

// A process in a frozen cgroup of version 1 ignores SIGKILL like one that hangs in the kernel.
func TestDeadlineHoldsForACommandThatCannotBeKilled(t *testing.T) {
	tier.Slow(t)
	inEachWay(t, func(t *testing.T, run runFunc) {
		freezer, err := os.MkdirTemp("/sys/fs/cgroup/freezer", "sonde-test-")
		if err != nil {
			t.Skip("no freezer cgroup can be made here: ", err)
		}
		state := filepath.Join(freezer, "freezer.state")
		h := newHandler(t, run, sh(`echo $$$$ >`+freezer+`/cgroup.procs; echo FROZEN >`+state+`; sleep 600`))
		defer func() {
			_ = os.WriteFile(state, []byte("THAWED"), 0)
			testsync.Until(t, "the death of the command", func() bool { return len(h.stuck) == 0 })
			testsync.Until(t, "the removal of its cgroup", func() bool { return os.Remove(freezer) == nil })
		}()
		r := atDeadline(t, h, "the command to be frozen", func() bool {
			text, _ := os.ReadFile(state)
			return string(text) == "FROZEN\n"
		})
		if r.Reason != probe.ReasonExecTimeout {
			t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
		}
		testsync.Until(t, "the count of the command", func() bool { return len(h.stuck) == 1 })
	})
}
