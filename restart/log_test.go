package restart_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

func count(log, text string) int { return strings.Count(log, text) }

func TestCrashLoopIsAnErrorOnceInARunOfExits(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		lasts := func(n int) behavior {
			if n == 6 {
				return behavior{exitsAfter: time.Hour, code: 1} // longer than the back-off's reset
			}
			return behavior{exitsAfter: time.Second, code: 3}
		}
		h.apply(map[string]restart.Unit{"web": {Driver: newDriver("a", lasts)}})
		h.sleep(time.Second + 100*time.Millisecond)
		if in := h.expect("web", "a-1", probe.Running, ""); in.Restarts != 1 {
			t.Errorf("got %+v", in)
		}
		if s, _ := h.engine.Target("web"); s.State != probe.StateReady {
			t.Errorf("after one exit the target is %v", s.State)
		}
		h.sleep(3 * time.Second)
		if s, _ := h.engine.Target("web"); s.State != probe.StateCrashLooping || s.Cause.Reason != probe.ReasonBackOff {
			t.Errorf("after two exits the target is %v, %+v", s.State, s.Cause)
		}
		h.sleep(time.Hour)
		if n := count(h.log.String(), `level=ERROR msg="instance exited again, crash loop" target=web`); n != 1 {
			t.Errorf("%d errors in one run of exits:\n%s", n, h.log)
		}
		h.sleep(time.Hour)
		if n := count(h.log.String(), `level=ERROR msg="instance exited again, crash loop" target=web`); n != 2 {
			t.Errorf("%d errors in two runs of exits:\n%s", n, h.log)
		}
	})
}

func TestInstanceAfterACrashLoopIsProvenWhenItHasRunAsLongAsTheBackOff(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.apply(map[string]restart.Unit{"web": {Driver: newDriver("a", func(n int) behavior {
			if n < 2 {
				return behavior{exitsAfter: time.Second, code: 3}
			}
			return behavior{}
		})}})
		h.probes(map[string]probe.Handler{"web": &fakeHandler{}})
		state := func(after time.Duration, want probe.TargetState) {
			t.Helper()
			h.sleep(after)
			if s, _ := h.engine.Target("web"); s.State != want {
				t.Errorf("the target is %v, want %v", s.State, want)
			}
		}
		state(5*time.Second, probe.StateCrashLooping)
		state(10*time.Second, probe.StateCrashLooping) // it runs since 12s
		h.expect("web", "a-2", probe.Running, probe.ReasonCrashLoop)
		state(10*time.Second, probe.StateReady)
		h.expect("web", "a-2", probe.Running, "")
	})
}

func TestProgramThatCannotBeStartedIsAnErrorOnce(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.apply(map[string]restart.Unit{"web": {Driver: newDriver("a", func(int) behavior { return behavior{err: errors.New("no such file")} })}})
		h.sleep(time.Hour)
		if s, _ := h.engine.Target("web"); s.State != probe.StateCannotStart {
			t.Errorf("the target is %v", s.State)
		}
		if n := count(h.log.String(), `level=ERROR msg="instance failed to start" target=web`); n != 1 {
			t.Errorf("%d errors:\n%s", n, h.log)
		}
	})
}

func TestTargetOnHoldForTheBudgetIsInTrouble(t *testing.T) {
	inBubble(t, restart.Budget{Max: 1, Per: time.Hour}, func(h *harness) {
		sick := &fakeHandler{failing: true}
		h.probes(map[string]probe.Handler{"a": sick, "b": sick})
		h.apply(map[string]restart.Unit{"a": {Driver: newDriver("a", healthy)}, "b": {Driver: newDriver("b", healthy)}})
		h.sleep(time.Minute)
		if n := h.engine.States()[probe.StateRestartBlocked]; n == 0 {
			t.Errorf("no restart is blocked: %v\n%s", h.engine.States(), h.log)
		}
		if count(h.log.String(), `level=WARN msg="probe failing, restart delayed"`) == 0 {
			t.Errorf("no warning:\n%s", h.log)
		}
	})
}

func TestOneShotStaysVisibleWithItsExitStatusUntilItsUnitIsRemoved(t *testing.T) {
	for code, want := range map[int]probe.TargetState{0: probe.StateCompleted, 3: probe.StateExited} {
		inBubble(t, restart.Budget{}, func(h *harness) {
			units := map[string]restart.Unit{"job": {Policy: restart.Never, Driver: newDriver("a", func(int) behavior { return behavior{exitsAfter: time.Second, code: code} })}}
			h.apply(units)
			h.sleep(time.Hour)
			s, ok := h.engine.Target("job")
			if !ok || s.State != want || !strings.HasPrefix(s.Instance.Detail, "exit status") {
				t.Errorf("the target exists: %v, %v, %q", ok, s.State, s.Instance.Detail)
			}
			h.apply(nil)
			h.sleep(time.Second)
			if s, ok := h.engine.Target("job"); ok {
				t.Errorf("the removed target is %v", s.State)
			}
		})
	}
}
