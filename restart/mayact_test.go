package restart_test

import (
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// A target is restarted within seconds after the engine has become its owner, without waiting for a back-off. Until
// then the budget is not charged.
func TestARestartWaitsUntilTheEngineMayAct(t *testing.T) {
	inBubble(t, restart.Budget{Max: 1, Per: 3600 * s}, func(h *harness) {
		h.isOthers.Store(true)
		web := new(fakeHandler)
		d := newDriver("web", func(int) behavior {
			web.setFailing(false)
			return behavior{}
		})
		h.probes(map[string]probe.Handler{"web": web})
		h.apply(only(d))
		web.setFailing(true)
		h.sleep(600 * s)
		h.expect("web", "web-0", probe.Running, probe.ReasonOwnership)
		if st, _ := h.engine.Target("web"); st.State != probe.StateRestartBlocked || len(d.graces()) > 0 {
			t.Errorf("the state is %v, and the instance was terminated %d times", st.State, len(d.graces()))
		}
		if m, _ := h.control.Memory("web"); !m.Charged.IsZero() {
			t.Errorf("the budget was charged at %v", m.Charged)
		}
		h.isOthers.Store(false)
		h.sleep(2 * s)
		if len(d.graces()) != 1 {
			t.Errorf("it was terminated %d times", len(d.graces()))
		}
	})
}
