package restart_test

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// resuming is an external driver that looks for the instance of an earlier engine.
type resuming struct{ external }

func (resuming) Resume(string) bool { return true }

// The instance that another controller has remembered has ended unobserved: its exit counts, also when
// this controller has supervised the target before.
func TestAMemoryThatIsTakenOverReplacesThatOfTheController(t *testing.T) {
	for name, isSupervised := range map[string]bool{"new": false, "supervised": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				web, d := new(fakeHandler), newDriver("web", healthy)
				u := restart.Unit{Driver: resuming{external{d}}, Revision: "1"}
				units := map[string]restart.Unit{"web": u}
				h.probes(map[string]probe.Handler{"web": web})
				if isSupervised {
					h.apply(units)
					h.sleep(600 * s)
				}
				m := restart.Memory{Revision: u.RevisionID(), Instance: "earlier", Since: time.Now().Add(-30 * s), Started: 5, Exits: 4}
				if err := h.control.TakeOver(units, nil, map[string]restart.Memory{"web": m}); err != nil {
					t.Fatal(err)
				}
				web.setFailing(true)
				h.sleep(79 * s)
				if in, ok := h.engine.Target("web"); !ok || in.Instance.Restarts != 5 {
					t.Errorf("%d restarts are known", in.Instance.Restarts)
				}
				if n := len(d.graces()); n > 0 {
					t.Errorf("it was terminated %d times within its back-off", n)
				}
				h.sleep(2 * s)
				if n := len(d.graces()); n != 1 {
					t.Errorf("it was terminated %d times after its back-off", n)
				}
				if m, _ := h.control.Memory("web"); m.Exits != 6 {
					t.Errorf("%+v", m)
				}
			})
		})
	}
}

func TestATakeOverOfInvalidUnitsChangesNothing(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		if err := h.control.TakeOver(map[string]restart.Unit{"": {}}, nil, map[string]restart.Memory{"": {}}); err == nil {
			t.Error("a unit without a target was taken over")
		}
		if _, ok := h.control.Memory(""); ok {
			t.Error("it is remembered")
		}
	})
}
