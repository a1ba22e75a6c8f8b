package fleet_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/adapter/fleet"
	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/probe"
)

const crippled = "shop/web-0"

// The owner is killed at times that are spread over the first two restarts of a target whose instances all fail,
// and over the back-offs between them: the next owner goes on as the first would have.
func TestABackOffIsKeptByTheNextOwner(t *testing.T) {
	for after := time.Duration(0); after < 24*time.Second; after += 1730 * time.Millisecond {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { killWhileRestarting(t, after, 700*time.Millisecond) })
		})
	}
}

// killWhileRestarting kills the owner some time after the target begins to fail, each of whose instances needs a
// lag to terminate.
func killWhileRestarting(t *testing.T, after, lag time.Duration) {
	w, b := newWorld(), coord.NewLocal()
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

// blind is a driver that does not see the instances of a target, as one that restarts it by a command: it names
// them itself.
type blind struct {
	driver
	resumed *string
}

func (d blind) Resume(id string) bool { *d.resumed = id; return true }

func (d blind) Run(ctx context.Context, began func(string), end <-chan time.Duration) restart.Exit {
	id := *d.resumed
	if *d.resumed = ""; id == "" {
		id = rand.Text()
	}
	began(id)
	select {
	case <-end:
		d.world.end(d.target, d.world.running(d.target).id)
		return restart.Exit{}
	case <-ctx.Done():
		return restart.Exit{Code: -1, Err: context.Cause(ctx)}
	}
}

// An act that is recorded as done is not done again by the next owner, even if its driver cannot see that: the
// owner before was killed before it could store what it remembers.
func TestAnActThatIsDoneEndsTheInstanceForTheNextOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coord.NewLocal()
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
