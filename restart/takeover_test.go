package restart_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// resuming is an External driver that resumes the instance of an earlier engine.
type resuming struct{ external }

func (resuming) Resume(string) bool { return true }

// The instance in the memory of another controller has ended unobserved: its exit counts, even if this controller
// supervised the target before.
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

// elsewhere is an External driver of an instance that no engine runs.
type elsewhere struct{}

func (elsewhere) SetFailed(func(error)) {}

func (elsewhere) Resume(string) bool { return true }

func (elsewhere) Run(ctx context.Context, began func(restart.Begun), _ <-chan time.Duration) restart.Exit {
	began(restart.Begun{ID: "there"})
	<-ctx.Done()
	return restart.Exit{Code: -1, Err: context.Cause(ctx)}
}

// A target that is handed over returns before its supervisor has exited, or just after: its instance keeps running, and
// no verdict is lost.
func TestATargetThatComesBackAtOnceGoesOn(t *testing.T) {
	at := func(when string) func(string) { // waits for the supervisor if when matches
		return func(now string) {
			if now == when {
				synctest.Wait()
			}
		}
	}
	for _, when := range []string{"never", "when it is given away", "when its probes are back"} {
		t.Run(when, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				wait, id := at(when), liveness("web")
				units := map[string]restart.Unit{"web": {Driver: elsewhere{}, Revision: "1"}}
				h.probes(map[string]probe.Handler{"web": new(fakeHandler)})
				h.apply(units)
				h.sleep(600 * s)
				unit, _ := h.control.Memory("web")
				memory, _ := h.engine.Snapshot(id)
				h.probes(nil)
				if err := h.control.TakeOver(nil, []string{"web"}, nil); err != nil {
					t.Fatal(err)
				}
				wait("when it is given away")
				web := probe.Probe{Rule: probe.Rule{Period: time.Second, FailureThreshold: 1}, Handler: new(fakeHandler), HandlerName: "test"}
				if _, err := h.engine.Change(engine.Change{Set: probe.Set{id: web}, Memories: map[probe.ID]engine.Memory{id: memory}}); err != nil {
					t.Fatal(err)
				}
				wait("when its probes are back")
				if err := h.control.TakeOver(units, nil, map[string]restart.Memory{"web": unit}); err != nil {
					t.Fatal(err)
				}
				h.expect("web", "there", probe.Running, "")
				h.sleep(500 * time.Millisecond)
				h.expect("web", "there", probe.Running, "")
				if m, _ := h.engine.Snapshot(id); m.State.Run < memory.State.Run || m.Changes != memory.Changes {
					t.Errorf("%+v, it was %+v", m, memory)
				}
			})
		})
	}
}
