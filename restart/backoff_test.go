package restart_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

const s = time.Second

func TestCrashLoopDoublesTheBackOff(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		a := newDriver("web", func(int) behavior { return behavior{exitsAfter: s, code: 1} })
		h.apply(only(a))
		h.sleep(1500 * time.Millisecond)
		if in := h.expect("web", "web-1", probe.Running, ""); in.Restarts != 1 || !in.Managed {
			t.Errorf("got %+v", in)
		}
		h.sleep(s)
		in := h.expect("web", "web-1", probe.Ended, probe.ReasonBackOff)
		h.expectText(in.Detail, "exit status 1; next start in 10s (back-off), at 2000-01-01T00:00:12Z: oops")
		h.sleep(1000 * s)
		// instances of 1 s between back-offs of 0, 10, 20, 40, 80, 160, 300 and 300 seconds
		h.expectTimes("began at", a.starts(), 0, 1*s, 12*s, 33*s, 74*s, 155*s, 316*s, 617*s, 918*s)
	})
}

func TestLongRunningInstanceResetsTheBackOff(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		a := newDriver("web", func(n int) behavior {
			if n == 2 {
				return behavior{exitsAfter: 601 * s}
			}
			return behavior{exitsAfter: s}
		})
		h.apply(only(a))
		h.sleep(630 * s)
		h.expectTimes("began at", a.starts(), 0, 1*s, 12*s, 613*s, 624*s)
	})
}

func TestUnitBackOffOverridesTheDefault(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		a := newDriver("web", func(int) behavior { return behavior{exitsAfter: s} })
		h.apply(map[string]restart.Unit{"web": {Driver: a, BackOff: restart.BackOff{Initial: 2 * s, Max: 3 * s}}})
		h.sleep(14 * s)
		h.expectTimes("began at", a.starts(), 0, 1*s, 4*s, 8*s, 12*s)
	})
}

func TestInstanceThatFailsToStartIsRetried(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		a := newDriver("web", func(n int) behavior {
			if n < 3 {
				return behavior{err: errors.New("no such file")}
			}
			return behavior{}
		})
		h.apply(only(a))
		in := h.expect("web", "none", probe.Waiting, probe.ReasonNoStart)
		h.expectText(in.Detail, "no such file")
		h.sleep(40 * s)
		h.expectTimes("began at", a.starts(), 0, 0, 10*s, 30*s)
		if in := h.expect("web", "web-3", probe.Running, ""); in.Restarts != 0 {
			t.Errorf("%d restarts, want none", in.Restarts)
		}
	})
}

func TestAShortageOfTheEngineIsNoExit(t *testing.T) {
	for lack, reason := range map[error]probe.Reason{restart.ErrShortage: probe.ReasonResources, restart.ErrNotTakenOver: probe.ReasonNoStart} {
		t.Run(string(reason), func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				a := newDriver("web", func(n int) behavior {
					if n < 2 || n >= 3 && n < 8 {
						return behavior{err: fmt.Errorf("%w: too many open files", lack)}
					}
					return behavior{exitsAfter: 60 * s, code: 1}
				})
				h.apply(map[string]restart.Unit{"web": {Driver: a, Policy: restart.OnFailure}})
				in := h.expect("web", "none", probe.Waiting, reason)
				h.expectText(in.Detail, "retrying within 20s")
				h.expectText(in.Detail, "too many open files")
				h.sleep(5 * s)
				h.expect("web", "web-2", probe.Running, "")
				h.sleep(60 * s)
				if in := h.expect("web", "web-2", probe.Ended, reason); in.Restarts != 0 {
					t.Errorf("%d restarts before one", in.Restarts)
				}
				if m, _ := h.control.Memory("web"); m.Exits != 1 || m.Code != 1 {
					t.Errorf("the controller remembers %+v", m)
				}
				h.sleep(8 * s)
				if in := h.expect("web", "web-8", probe.Running, ""); in.Restarts != 1 {
					t.Errorf("%d restarts, want 1", in.Restarts)
				}
				h.sleep(90 * s) // the back-off of the second exit
				h.expectTimes("began at", a.starts(), 0, 2*s, 3*s, 63*s, 65*s, 67*s, 68*s, 70*s, 71*s, 141*s)
				if n := strings.Count(h.log.String(), "instance not started, retrying"); n != 5 {
					t.Errorf("7 tries have %d log records, want 5 (1, 2; 1, 2, 4)", n)
				}
			})
		})
	}
}

func TestAUnitThatIsRemovedDuringAShortageIsGone(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		a := newDriver("web", func(int) behavior { return behavior{err: restart.ErrShortage} })
		h.apply(only(a))
		h.sleep(time.Hour)
		if n := strings.Count(h.log.String(), "instance not started, retrying"); n > 70 {
			t.Errorf("the tries of an hour have %d log records", n)
		}
		h.apply(nil)
		if in := h.instance("web"); in.ID != "" && in.Phase != probe.Gone {
			t.Errorf("got %+v", in)
		}
	})
}

func TestPolicyDecidesAboutRestarts(t *testing.T) {
	for name, c := range map[string]struct {
		policy restart.Policy
		code   int
		phase  probe.Phase
	}{
		"always, 0":     {restart.Always, 0, probe.Running},
		"always, 1":     {restart.Always, 1, probe.Running},
		"on failure, 0": {restart.OnFailure, 0, probe.Gone},
		"on failure, 1": {restart.OnFailure, 1, probe.Running},
		"never, 0":      {restart.Never, 0, probe.Gone},
		"never, 1":      {restart.Never, 1, probe.Gone},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				a := newDriver("web", func(n int) behavior { return behavior{exitsAfter: time.Duration(1-n) * s, code: c.code} })
				h.probes(map[string]probe.Handler{"web": new(fakeHandler)})
				h.apply(map[string]restart.Unit{"web": {Driver: a, Policy: c.policy}})
				h.sleep(2 * s)
				if in := h.instance("web"); in.Phase != c.phase {
					t.Errorf("got %+v, want it %v", in, c.phase)
				}
			})
		})
	}
}

func TestChangedPolicyRestartsAGoneTarget(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		a := newDriver("web", func(n int) behavior { return behavior{exitsAfter: time.Duration(1-n) * s, code: 1} })
		h.probes(map[string]probe.Handler{"web": new(fakeHandler)})
		h.apply(map[string]restart.Unit{"web": {Driver: a, Policy: restart.Never}})
		h.sleep(2 * s)
		h.expect("web", "web-0", probe.Gone, probe.ReasonExited)
		h.apply(map[string]restart.Unit{"web": {Driver: a, Policy: restart.OnFailure}})
		in := h.expect("web", "web-1", probe.Running, "")
		h.expectText(in.Detail, "exit status 1: oops")
	})
}

func TestUnitWithoutDriverIsReportedAsRunning(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.probes(map[string]probe.Handler{"web": new(fakeHandler)})
		h.apply(map[string]restart.Unit{"web": {}})
		h.sleep(s)
		h.apply(map[string]restart.Unit{"web": {}})
		if in := h.expect("web", "static", probe.Running, ""); in.Managed || time.Since(in.Since) != s {
			t.Errorf("got %+v", in)
		}
		h.apply(nil)
		h.expect("web", "static", probe.Gone, "")
	})
}

func TestTargetWhoseProbesWereRemovedIsProbedAgainWhenTheyAreBack(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		probes := map[string]probe.Handler{"static": new(fakeHandler), "unmanaged": new(fakeHandler)}
		a := newDriver("unmanaged", func(int) behavior { return behavior{} })
		units := map[string]restart.Unit{"static": {}, "unmanaged": {Driver: external{a}, Policy: restart.Never}}
		h.probes(probes)
		h.apply(units)
		h.sleep(s)
		h.probes(nil)
		h.apply(units)
		h.sleep(s)
		h.probes(probes)
		h.apply(units)
		if in := h.expect("static", "static", probe.Running, ""); time.Since(in.Since) != 2*s {
			t.Errorf("got %+v", in)
		}
		h.expect("unmanaged", "unmanaged-0", probe.Running, "")
	})
}

func TestDriverCanBeAddedAndRemoved(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.probes(map[string]probe.Handler{"web": new(fakeHandler)})
		a := newDriver("web", func(int) behavior { return behavior{endsAfter: 5 * s} })
		h.apply(map[string]restart.Unit{"web": {}})
		h.apply(only(a))
		h.expect("web", "web-0", probe.Running, "")
		h.apply(map[string]restart.Unit{"web": {}})
		if in := h.expect("web", "web-0", probe.Running, ""); !in.Terminating {
			t.Errorf("got %+v, want it terminating", in)
		}
		h.sleep(6 * s)
		h.expect("web", "static", probe.Running, "")
	})
}
