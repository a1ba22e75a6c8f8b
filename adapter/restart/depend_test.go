package restart_test

import (
	"testing"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/probe"
)

// A target that fails since one that it depends on is in trouble is not restarted: its probes go on,
// and it recovers with the other one, or is restarted then.
func TestATargetIsNotRestartedWhileItsDependencyIsInTrouble(t *testing.T) {
	for name, recovers := range map[string]bool{"the probe recovers": true, "the probe goes on failing": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				db, web, d := &fakeHandler{failing: true}, new(fakeHandler), newDriver("web", healthy)
				h.probes(map[string]probe.Handler{"db": db, "web": web})
				h.apply(map[string]restart.Unit{"web": {Driver: d}, "db": {}})
				if err := h.engine.SetDependencies(map[string][]string{"web": {"db"}}); err != nil {
					t.Fatal(err)
				}
				h.sleep(5 * s)
				web.setFailing(true)
				h.sleep(60 * s)
				h.expect("web", "web-0", probe.Running, probe.ReasonDependency)
				if st, _ := h.engine.Target("web"); st.State != probe.StateUnreachable || st.TroubledDependency != "db" || len(d.graces()) > 0 {
					t.Errorf("the state is %v, because of %q, and the instance was terminated %d times", st.State, st.TroubledDependency, len(d.graces()))
				}
				h.expectText(h.log.String(), "delay_reason=restart.dependency")

				web.setFailing(!recovers)
				h.sleep(2 * s)
				db.setFailing(false)
				h.sleep(20 * s)
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
