package fleet_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

const crippled = "shop/web-0"

// The owner is killed at times spread over the first two restarts of a target whose instances all fail, and over the
// back-offs between them. The next owner continues as the first would have.
func TestABackOffIsKeptByTheNextOwner(t *testing.T) {
	tier.Slow(t)
	for after := time.Duration(0); after < 24*time.Second; after += tier.Pick(10*time.Second, 1730*time.Millisecond, 1730*time.Millisecond) {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { killWhileRestarting(t, after, 700*time.Millisecond) })
		})
	}
}

// killWhileRestarting kills the owner some time after the target begins to fail. Each instance takes lag to terminate.
func killWhileRestarting(t *testing.T, after, lag time.Duration) {
	w, b := newWorld(), coordtest.NewLocal()
	one := start(t, "one", b, w.targets(1))
	time.Sleep(time.Minute)
	two := start(t, "two", b, w.targets(1))
	time.Sleep(time.Minute)
	owner := one
	if two.probes() > 0 {
		owner = two
	}
	w.cripple(crippled, lag)
	began := time.Now()
	time.Sleep(after)
	owner.kill()
	time.Sleep(5 * time.Minute)
	backOffs := []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second}
	restarts := w.restarts(crippled)
	for i, at := range restarts {
		if _, ended := w.counts(fmt.Sprintf("%s#%d", crippled, i)); ended != 1 {
			t.Errorf("instance %d has ended %d times", i, ended)
		}
		if i == 0 || i > len(backOffs) {
			continue
		}
		waited, want := at.Sub(restarts[i-1])-lag, backOffs[i-1]
		if waited < want || waited > want+coord.DefaultTTL+5*time.Second {
			t.Errorf("restart %d came %v after the one before, %v after the failure; the back-off is %v", i+1, waited, at.Sub(began), want)
		}
	}
	if n := len(restarts); n < 5 || n > len(backOffs)+1 {
		t.Errorf("%d restarts within five minutes", n)
	}
	for _, m := range []*member{one, two} {
		if s, ok := m.engine.Target(crippled); ok && m != owner && int(s.Instance.Restarts) != len(restarts) {
			t.Errorf("the next owner says %d restarts, there were %d", s.Instance.Restarts, len(restarts))
		}
	}
}

// blind is a driver that does not detect the instances of a target, like one that restarts it by a command: it names the
// instances itself.
type blind struct {
	driver
	resumed *string
}

func (d blind) Resume(id string) bool { *d.resumed = id; return true }

func (d blind) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	id := *d.resumed
	if *d.resumed = ""; id == "" {
		id = rand.Text()
	}
	began(restart.Begun{ID: id})
	select {
	case <-end:
		d.world.end(d.target, d.world.running(d.target).id)
		return restart.Exit{}
	case <-ctx.Done():
		return restart.Exit{Code: -1, Err: context.Cause(ctx)}
	}
}

// unrecorded is a blind driver that takes some seconds to terminate an instance. The first one that has done so cuts its
// engine off.
type unrecorded struct {
	blind
	cut func()
}

func (d unrecorded) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	slow := make(chan time.Duration)
	go func() {
		select {
		case grace := <-end:
			time.Sleep(3 * time.Second)
			d.cut()
			select {
			case slow <- grace:
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
	}()
	return d.blind.Run(ctx, began, slow)
}

// endUnrecorded makes the first of two engines restart the target, and kills it before it records that. It returns the
// other one, which takes the target over within the TTL, long before the next regular attempt. If isForgetful is set,
// the verdicts of the first engine's probes are not stored. wrap wraps the handlers of the probes.
func endUnrecorded(t *testing.T, w *world, b coord.Backend, isForgetful bool, wrap func(probe.Handler) probe.Handler) (next *member) {
	t.Helper()
	var first sync.Once
	launch := func(name string) *member {
		cut := &cutOff{Backend: b}
		targets := w.with(unrecorded{
			blind{driver{world: w, target: crippled}, new(string)},
			func() { first.Do(func() { cut.isCut.Store(true) }) },
		})
		for id, p := range targets.Probes {
			p.Handler, p.Rule.Period, p.Rule.FailureThreshold = wrap(p.Handler), 30*time.Second, 1
			p.Rule.Timeout = 5 * time.Second
			targets.Probes[id] = p
		}
		return startWith(t, coord.Config{Name: name, Backend: cut, MaxAge: store.DefaultMaxAge}, cut, targets)
	}
	owner, next := launch("one"), launch("two")
	time.Sleep(time.Minute)
	if next.probes() > 0 {
		owner, next = next, owner
	}
	owner.backend.isForgetful.Store(isForgetful)
	w.infect(crippled, 0)
	for len(w.restarts(crippled)) == 0 {
		time.Sleep(100 * time.Millisecond)
	}
	owner.kill()
	return next
}

// The next owner makes an attempt before it repeats a restart that was begun: a target that is well is not restarted
// again.
func TestARestartThatMayBeDoneIsMadeAgainOnlyIfTheTargetStillFails(t *testing.T) {
	tier.Slow(t)
	for name, c := range map[string]struct {
		isSick   bool
		unknown  time.Duration // how long attempts of the next owner have no outcome
		restarts int
	}{
		"it is well":                          {restarts: 1},
		"it fails":                            {isSick: true, restarts: 2},
		"it is well, which is not known soon": {unknown: 30 * time.Second, restarts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, b := newWorld(), coordtest.NewLocal()
				var knownFrom atomic.Pointer[time.Time]
				next := endUnrecorded(t, w, b, false, func(known probe.Handler) probe.Handler {
					return probe.HandlerFunc(func(ctx context.Context, to probe.Target) probe.Result {
						if to.Name != crippled {
							t.Errorf("an attempt at %q", to.Name)
						}
						if at := knownFrom.Load(); at != nil && time.Now().Before(*at) {
							return probe.Broken("test.lacks", "no descriptors")
						}
						time.Sleep(1500 * time.Millisecond) // the next owner may restart it before its first attempt has finished
						return known.Probe(ctx, to)
					})
				})
				from := time.Now().Add(c.unknown)
				knownFrom.Store(&from)
				if c.isSick {
					w.infect(crippled, 0)
				}
				time.Sleep(2 * time.Minute)
				if n := len(w.restarts(crippled)); n != c.restarts {
					t.Errorf("%d restarts, want %d", n, c.restarts)
				}
				s, _ := next.engine.Target(crippled)
				if s.Instance.Restarts != 1 && c.unknown == 0 || s.State != probe.StateReady {
					t.Errorf("%d restarts are known, the target is %v: %v", s.Instance.Restarts, s.State, s.Instance.Detail)
				}
			})
		})
	}
}

// An operator's restart is made, whatever an earlier owner has begun.
func TestAnOperatorsRestartIsMadeAlthoughOneMayBeDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		next := endUnrecorded(t, w, coordtest.NewLocal(), true, func(h probe.Handler) probe.Handler { return h })
		time.Sleep(time.Minute)
		if _, err := next.restarts.Restart(crippled, "test"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := len(w.restarts(crippled)); n != 2 {
			t.Errorf("%d restarts, want 2", n)
		}
	})
}

// An act that is recorded as done is not repeated by the next owner, even if its driver does not detect that: the
// previous owner was killed before it could store its memories.
func TestAnActThatIsDoneEndsTheInstanceForTheNextOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		targets := func() fleet.Targets {
			all := w.targets(1)
			all.Units[crippled] = restart.Unit{Driver: blind{driver{world: w, target: crippled}, new(string)}, Revision: "1"}
			return all
		}
		one := start(t, "one", b, targets())
		time.Sleep(time.Minute)
		w.infect(crippled, 0)
		one.backend.isForgetful.Store(true)
		time.Sleep(5 * time.Second)
		if n := len(w.restarts(crippled)); n != 1 {
			t.Fatalf("%d restarts by the first owner", n)
		}
		one.kill()
		w.infect(crippled, 0) // the new instance fails as well
		two := start(t, "two", b, targets())
		time.Sleep(time.Minute)
		if n := len(w.restarts(crippled)); n != 2 {
			t.Errorf("%d restarts of two instances that fail", n)
		}
		if s, _ := two.engine.Target(crippled); s.Instance.Restarts != 2 || s.State != probe.StateReady {
			t.Errorf("%d restarts, %v", s.Instance.Restarts, s.State)
		}
	})
}
