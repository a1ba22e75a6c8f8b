package restart_test

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// outliving is a driver whose instances outlive the controller.
type outliving struct {
	*fakeDriver
	causes chan error // why the context of a Run was done
	stop   restart.StopSettings
}

func (d *outliving) Outlives() bool { return true }

func (d *outliving) SetStop(s restart.StopSettings) { d.stop = s }

func (d *outliving) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	exit := d.fakeDriver.Run(ctx, began, end)
	if context.Cause(ctx) == restart.ErrReleased {
		exit = restart.Exit{Err: restart.ErrReleased}
	}
	d.causes <- context.Cause(ctx)
	return exit
}

func TestInstancesThatOutliveTheControllerAreReleased(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := &outliving{newDriver("web", healthy), make(chan error, 1), restart.StopSettings{}}
		h.apply(map[string]restart.Unit{"web": {Driver: d}})
		h.stop()
		synctest.Wait()
		if cause := <-d.causes; cause != restart.ErrReleased || len(d.ends) != 0 {
			t.Errorf("the context is done with %v, after requests to end %v", cause, d.ends)
		}
		h.expect("web", "web-0", probe.Running, "")
		if m, ok := h.control.Memory("web"); ok && m.Exited {
			t.Errorf("the controller remembers an exit: %+v", m)
		}
	})
}

func TestInstancesThatCouldOutliveTheControllerEndOtherwise(t *testing.T) {
	for name, leave := range map[string]func(h *harness){
		"removed": func(h *harness) { h.apply(nil) },
		"stopped while a probe ends it": func(h *harness) {
			h.probes(map[string]probe.Handler{"web": &fakeHandler{failing: true}})
			h.sleep(2 * time.Second)
			h.stop()
			h.sleep(0)
		},
		"stopped while an operator restarts it": func(h *harness) {
			h.operate(h.control.Restart, "web")
			h.stop()
			h.sleep(0)
		},
		"killed": func(h *harness) { h.control.Kill(); h.sleep(0) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				d := &outliving{newDriver("web", func(int) behavior { return behavior{endsAfter: 5 * time.Second} }), make(chan error, 1), restart.StopSettings{}}
				h.apply(map[string]restart.Unit{"web": {Driver: d}})
				leave(h)
				h.sleep(10 * time.Second)
				if cause := <-d.causes; cause == restart.ErrReleased {
					t.Error("the instance was released")
				}
				if in := h.instance("web"); in.Phase == probe.Running {
					t.Errorf("the instance is %+v", in)
				}
			})
		})
	}
}

// starting is a driver that has not finished starting its instance when it is asked to terminate it, or its context is
// done.
type starting struct{ ended chan error }

func (starting) Outlives() bool { return true }

func (starting) SetStop(restart.StopSettings) {}

func (d starting) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	select {
	case <-end:
		d.ended <- nil
	case <-ctx.Done():
		d.ended <- context.Cause(ctx)
	}
	return restart.Exit{Err: context.Cause(ctx)}
}

func TestAnInstanceThatHasNotBegunIsReleasedToo(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := starting{make(chan error, 1)}
		h.apply(map[string]restart.Unit{"web": {Driver: d}})
		h.stop()
		if err := <-h.ended; err != nil {
			t.Error(err)
		}
		if cause := <-d.ended; cause != restart.ErrReleased {
			t.Errorf("the instance was ended with %v", cause)
		}
	})
}

// exiting is a driver whose instance exits as it is released.
type exiting struct{}

func (exiting) Outlives() bool { return true }

func (exiting) SetStop(restart.StopSettings) {}

func (exiting) Run(ctx context.Context, began func(restart.Begun), _ <-chan time.Duration) restart.Exit {
	began(restart.Begun{ID: "a-0"})
	<-ctx.Done()
	return restart.Exit{Code: 3}
}

func TestAnExitDuringTheReleaseIsRemembered(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.apply(map[string]restart.Unit{"web": {Driver: exiting{}}})
		h.stop()
		if err := <-h.ended; err != nil {
			t.Error(err)
		}
		h.ended <- nil
		if m, _ := h.control.Memory("web"); !m.Exited || m.Code != 3 || m.Exits != 1 {
			t.Errorf("the controller remembers %+v", m)
		}
	})
}

func TestTheDriverOfARunningInstanceKnowsTheGracePeriodAndTheStopSignalOfItsUnit(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		unit := func(d *outliving, s restart.StopSettings) map[string]restart.Unit {
			return map[string]restart.Unit{"web": {Driver: d, Revision: "1", TerminationGracePeriod: s.GracePeriod, StopSignal: s.Signal}}
		}
		first := &outliving{newDriver("web", healthy), make(chan error, 1), restart.StopSettings{}}
		before := restart.StopSettings{GracePeriod: 2 * time.Minute, Signal: restart.StopSignal(syscall.SIGINT)}
		h.apply(unit(first, before))
		if first.stop != before {
			t.Errorf("before the start the driver was told %v", first.stop)
		}
		h.apply(unit(&outliving{newDriver("reloaded", healthy), make(chan error, 1), restart.StopSettings{}}, restart.StopSettings{GracePeriod: 5 * time.Second}))
		if want := (restart.StopSettings{GracePeriod: 5 * time.Second, Signal: restart.DefaultStopSignal}); first.stop != want {
			t.Errorf("after a reload the driver was told %v, want %v", first.stop, want)
		}
		h.expect("web", "web-0", probe.Running, "")
	})
}
