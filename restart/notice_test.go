package restart_test

import (
	"context"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// notifying is a driver whose instances are ready after ten seconds. Its first instance is not well from the twentieth
// second on: until it is terminated, or for the duration recovers.
type notifying struct {
	*fakeDriver
	recovers time.Duration // 0 for never
	set      func(restart.Notice)
	replaced int // number of instances terminated before they were ready
}

func (d *notifying) SetNotice(set func(restart.Notice)) { d.set = set }

func (d *notifying) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	d.set(restart.Notice{Reason: probe.ReasonStarting, Detail: "waiting for READY=1"})
	select {
	case <-time.After(10 * time.Second):
	case <-end:
		d.replaced++
		return restart.Exit{Code: 143}
	}
	d.set(restart.Notice{})
	if len(d.starts()) == 0 {
		sick := time.AfterFunc(10*time.Second, func() { d.set(restart.Notice{Reason: "process.watchdog", Detail: "no WATCHDOG=1"}) })
		defer sick.Stop()
		if d.recovers > 0 {
			time.AfterFunc(10*time.Second+d.recovers, func() { d.set(restart.Notice{}) })
		}
	}
	return d.fakeDriver.Run(ctx, began, end)
}

func TestAnInstanceThatIsNotWellIsRestarted(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := &notifying{fakeDriver: newDriver("web", healthy)}
		h.apply(map[string]restart.Unit{
			"web": {Driver: d}, "app": {Driver: newDriver("app", healthy), StartAfter: []string{"web"}},
		})
		h.sleep(5 * time.Second)
		h.expect("web", "none", probe.Waiting, probe.ReasonStarting)
		in := h.expect("app", "none", probe.Waiting, probe.ReasonStartAfter)
		h.expectText(in.Detail, "web (starting)")
		h.sleep(10 * time.Second)
		h.expect("web", "web-0", probe.Running, "")
		h.expect("app", "app-0", probe.Running, "")
		h.sleep(30 * time.Second)
		in = h.expect("web", "web-1", probe.Running, "")
		h.expectText(in.Detail, "no WATCHDOG=1, killed by SIGTERM")
		h.expectText(h.log.String(), `probe=web:liveness/watchdog reason=process.watchdog`)
	})
}

func TestAnOperatorReplacesAnInstanceThatIsNotReadyYet(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := &notifying{fakeDriver: newDriver("web", healthy)}
		h.apply(map[string]restart.Unit{"web": {Driver: d}})
		h.sleep(5 * time.Second)
		h.operate(h.control.Restart, "web")
		h.sleep(5 * time.Second)
		h.expect("web", "none", probe.Waiting, probe.ReasonStarting)
		h.sleep(6 * time.Second)
		in := h.expect("web", "web-0", probe.Running, "")
		if d.replaced != 1 || in.Restarts != 0 {
			t.Errorf("%d were replaced, %+v", d.replaced, in)
		}
		h.apply(nil)
		h.sleep(time.Minute)
	})
}

// Everything that delays a restart by a failing probe also delays one by the watchdog, until the instance is well
// again.
func TestTheRestartOfAnInstanceThatIsNotWellWaits(t *testing.T) {
	inBubble(t, restart.Budget{Max: 1, Per: time.Hour}, func(h *harness) {
		h.probes(map[string]probe.Handler{"other": &fakeHandler{failing: true}})
		other := restart.Unit{Driver: newDriver("other", healthy)}
		h.apply(map[string]restart.Unit{"other": other})
		h.sleep(10 * time.Second)
		h.apply(map[string]restart.Unit{"other": other, "web": {Driver: &notifying{fakeDriver: newDriver("web", healthy), recovers: time.Minute}}})
		h.sleep(30 * time.Second)
		h.expect("web", "web-0", probe.Running, probe.ReasonBudget)
		h.sleep(time.Minute)
		h.expect("web", "web-0", probe.Running, "")
	})
}
