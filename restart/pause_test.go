package restart_test

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// A target whose probe fails is not restarted while it is paused: its probes continue, and their verdicts count when
// the pause ends.
func TestATargetIsNotRestartedWhileItIsPaused(t *testing.T) {
	for name, recovers := range map[string]bool{"the probe recovers": true, "the probe goes on failing": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				web, d := new(fakeHandler), newDriver("web", healthy)
				h.probes(map[string]probe.Handler{"web": web})
				h.apply(only(d))
				h.sleep(5 * s)
				h.engine.Admin().Pause("web", engine.Pause{Reason: probe.ReasonMaintenance, Since: time.Now()})
				web.setFailing(true)
				h.sleep(600 * s)
				h.expect("web", "web-0", probe.Running, probe.ReasonMaintenance)
				if st, _ := h.engine.Target("web"); st.State != probe.StatePaused || st.Live || len(d.graces()) > 0 {
					t.Errorf("the state is %v, live: %v, and the instance was terminated %d times", st.State, st.Live, len(d.graces()))
				}
				h.expectText(h.log.String(), "delay_reason=restart.maintenance")

				web.setFailing(!recovers)
				h.sleep(2 * s)
				h.engine.Admin().Unpause("web")
				h.sleep(2 * s)
				if got, want := len(d.graces()) > 0, !recovers; got != want {
					t.Errorf("restarted: %v, want %v\n%s", got, want, h.log)
				}
				if recovers {
					h.expect("web", "web-0", probe.Running, "")
				}
			})
		})
	}
}

// A target whose probe fails is not restarted while it is damped. If it still fails when its damping ends, it is
// restarted.
func TestATargetIsNotRestartedWhileItIsDamped(t *testing.T) {
	for name, recovers := range map[string]bool{"the probe recovers": true, "the probe goes on failing": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				live, ready, d := new(fakeHandler), new(fakeHandler), newDriver("web", healthy)
				every := probe.Rule{Period: time.Second, FailureThreshold: 1}
				_, err := h.engine.Change(engine.Change{
					Set: probe.Set{
						liveness("web"):                        {Rule: every, Handler: live, HandlerName: "test"},
						{Target: "web", Kind: probe.Readiness}: {Rule: every, Handler: ready, HandlerName: "test"},
					},
					Dampings: map[string]probe.Damping{"web": {Max: 30 * time.Minute}},
				})
				if err != nil {
					t.Fatal(err)
				}
				h.apply(only(d))
				h.sleep(5 * s)
				for range 3 {
					ready.setFailing(true)
					h.sleep(2 * s)
					ready.setFailing(false)
					h.sleep(2 * s)
				}
				live.setFailing(true)
				h.sleep(600 * s)
				h.expect("web", "web-0", probe.Running, probe.ReasonDamped)
				if st, _ := h.engine.Target("web"); st.State != probe.StateDamped || st.Live || len(d.graces()) > 0 {
					t.Errorf("the state is %v, live: %v, and the instance was terminated %d times", st.State, st.Live, len(d.graces()))
				}
				h.expectText(h.log.String(), "delay_reason=restart.damped")

				live.setFailing(!recovers)
				h.sleep(2400 * s)
				if got, want := len(d.graces()) > 0, !recovers; got != want {
					t.Errorf("restarted: %v, want %v\n%s", got, want, h.log)
				}
				if recovers {
					h.expect("web", "web-0", probe.Running, "")
				}
			})
		})
	}
}

// A pause suspends restarts by probes. A process that exits on its own is started again as always; sonde stop is for an
// operator who does not want that.
func TestAPausedTargetThatExitsIsStartedAgain(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := newDriver("web", func(n int) behavior {
			if n == 0 {
				return behavior{exitsAfter: 10 * s, code: 1}
			}
			return behavior{}
		})
		h.engine.Admin().Pause("web", engine.Pause{Reason: probe.ReasonPaused, Since: time.Now()})
		h.apply(only(d))
		h.sleep(60 * s)
		h.expect("web", "web-1", probe.Running, "")
	})
}
