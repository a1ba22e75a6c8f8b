package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/command"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// with returns one target with another driver.
func (w *world) with(d restart.Driver) fleet.Targets {
	t := w.targets(1)
	t.Units[crippled] = restart.Unit{Driver: d, Revision: "1"}
	return t
}

// slow returns a driver that terminates instances inside the engine, and can always begin.
func (w *world) slow() lasting {
	return lasting{driver{world: w, target: crippled, asks: func(string) {}}, func() bool { return false }}
}

// The engine that has begun a restart is cut off. Its driver must be stopped before another engine begins, and the other
// engine makes the restart.
func TestTheEndOfALeaseStopsTheDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one := start(t, "one", b, w.with(w.slow()))
		time.Sleep(time.Minute)
		w.infect(crippled, 30*time.Second)
		time.Sleep(10 * time.Second)
		first := w.running(crippled).id
		if !w.isActing(first) {
			t.Fatal("the restart has not begun")
		}
		one.backend.isCut.Store(true)
		time.Sleep(coord.DefaultTTL)
		if w.isActing(first) {
			t.Error("the driver of the engine that was cut off goes on")
		}
		in, _ := one.engine.Target(crippled)
		if in.Instance.ID != first || in.Instance.Restarts != 0 || in.Instance.Reason != probe.ReasonOwnership {
			t.Errorf("the engine that was cut off has %+v", in.Instance)
		}
		start(t, "two", b, w.with(w.slow()))
		time.Sleep(time.Minute)
		if asked, ended := w.counts(first); asked != 2 || ended != 1 {
			t.Errorf("it was asked %d times, and has ended %d times", asked, ended)
		}
		if got := w.overlapping(); len(got) > 0 {
			t.Errorf("two drivers at the same time: %v", got)
		}
	})
}

// The lease is lost, and the same engine wins it again: then it makes the restart.
func TestARestartThatWasInterruptedIsMadeByTheSameEngineLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		one := start(t, "one", coordtest.NewLocal(), w.with(w.slow()))
		time.Sleep(time.Minute)
		w.infect(crippled, 10*time.Second)
		time.Sleep(5 * time.Second)
		first := w.running(crippled).id
		one.backend.isCut.Store(true)
		time.Sleep(20 * time.Second)
		one.backend.isCut.Store(false)
		time.Sleep(time.Minute)
		if asked, ended := w.counts(first); asked != 2 || ended != 1 {
			t.Errorf("it was asked %d times, and has ended %d times", asked, ended)
		}
		if in, _ := one.engine.Target(crippled); in.Instance.Restarts != 1 {
			t.Errorf("%d restarts are known", in.Instance.Restarts)
		}
	})
}

// A restart takes longer than the grace period of its target. An engine that should get the shard meanwhile must wait
// for it.
func TestAShardIsKeptUntilTheDriverHasExited(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		launch := func(n int) *member { return start(t, fmt.Sprintf("engine-%d", n), b, w.with(w.slow())) }
		one := launch(1)
		time.Sleep(time.Minute)
		w.infect(crippled, 5*time.Minute)
		time.Sleep(10 * time.Second)
		first := w.running(crippled).id
		if !w.isActing(first) {
			t.Fatal("the restart has not begun")
		}
		for n := 2; n < 12; n++ { // until one of them should get the shard
			launch(n)
		}
		time.Sleep(4 * time.Minute)
		if !w.isActing(first) || one.probes() == 0 {
			t.Error("the shard was given up before the restart has ended")
		}
		if text := one.log.String(); strings.Count(text, "restart under way") != 4 || !strings.Contains(text, "target="+crippled+" for=4m0s") {
			t.Errorf("after four minutes the engine has logged %q", text)
		}
		time.Sleep(5 * time.Minute)
		if asked, ended := w.counts(first); asked != 1 || ended != 1 {
			t.Errorf("it was asked %d times, and has ended %d times", asked, ended)
		}
		if one.probes() > 0 {
			t.Error("the test shows nothing: the shard has not moved")
		}
	})
}

// A restart that could not begin does not count: it is made as soon as it can.
func TestARestartThatCouldNotBeginIsNotRecorded(t *testing.T) {
	tier.Slow(t)
	for name, begin := range map[string]func() bool{"shortage": func() bool { return true }, "panic": func() bool { panic("test") }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				d, tries := w.slow(), 0
				d.lacks = func() bool {
					tries++
					return tries <= 3 && begin()
				}
				one := start(t, "one", coordtest.NewLocal(), w.with(d))
				time.Sleep(time.Minute)
				w.infect(crippled, 0)
				time.Sleep(5 * time.Minute)
				if n := len(w.restarts(crippled)); n != 1 || tries != 4 {
					t.Errorf("%d restarts, %d tries", n, tries)
				}
				if in, _ := one.engine.Target(crippled); name == "shortage" && in.Instance.Restarts != 1 {
					t.Errorf("%d restarts are known", in.Instance.Restarts)
				}
			})
		})
	}
}

// failing is a driver that cannot terminate instances, and reports that.
type failing struct {
	lasting
	asked  *atomic.Int64
	failed *func(error)
}

func (d failing) SetFailed(failed func(error)) { *d.failed = failed }

func (d failing) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	began(restart.Begun{ID: d.world.running(d.target).id})
	for {
		select {
		case <-end:
			d.asked.Add(1)
			time.Sleep(time.Second)
			(*d.failed)(errors.New("no such unit"))
		case <-ctx.Done():
			return restart.Exit{Code: -1, Err: context.Cause(ctx)}
		}
	}
}

// A driver that reports a failure ends its act, and an operator who waits for the restart gets the error.
func TestADriverThatHasFailedEndsItsAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := failing{w.slow(), new(atomic.Int64), new(func(error))}
		one := start(t, "one", coordtest.NewLocal(), w.with(d))
		time.Sleep(time.Minute)
		for n := range 3 {
			if _, err := one.restarts.Restart(crippled, "test"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			in, _ := one.engine.Target(crippled)
			if !strings.HasSuffix(in.Instance.Detail, ": no such unit") || d.asked.Load() != int64(n+1) {
				t.Errorf("after %d requests of %d the target says %q", d.asked.Load(), n+1, in.Instance.Detail)
			}
		}
	})
}

// An operator whose restart is withheld gets the error immediately.
func TestARestartThatIsWithheldIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		one := start(t, "one", coordtest.NewLocal(), w.with(w.slow()))
		time.Sleep(time.Minute)
		one.backend.isCut.Store(true)
		time.Sleep(2 * coord.DefaultTTL)
		if _, err := one.restarts.Restart(crippled, "test"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		in, _ := one.engine.Target(crippled)
		if asked, _ := w.counts(in.Instance.ID); asked > 0 || !strings.Contains(in.Instance.Detail, "restart withheld: ") {
			t.Errorf("after %d requests the target says %q", asked, in.Instance.Detail)
		}
	})
}

// A controller checks which interfaces drivers implement in addition to restart.Driver. A guarded driver must not hide
// those of the only driver that fleets use.
func TestAGuardedDriverHasTheMethodsOfItsDriver(t *testing.T) {
	inner, err := command.New(command.Config{Command: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		one := start(t, "one", coordtest.NewLocal(), w.with(inner))
		time.Sleep(time.Minute)
		outer := reflect.TypeOf(one.restarts.Driver(crippled))
		if outer == reflect.TypeOf(inner) {
			t.Fatal("the driver is not guarded")
		}
		for m := range reflect.TypeOf(inner).Methods() {
			if _, ok := outer.MethodByName(m.Name); !ok {
				t.Errorf("%v has no method %s", outer, m.Name)
			}
		}
	})
}
