package restart_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// container is a driver of one attached container, whose runtime may be unreachable.
type container struct {
	stateMu   sync.Mutex // guards the fields below
	lives     int        // number of instances so far
	since     time.Time  // when the latest instance began
	isUp      bool
	isAway    bool
	restarted []time.Duration // when the driver restarted or started it, since zero

	zero    time.Time
	resumed string
	changed chan struct{}     // capacity 1
	exits   chan restart.Exit // of the running instance
	notice  func(restart.Notice)
}

func newContainer() *container {
	return &container{lives: 1, since: time.Now(), isUp: true, zero: time.Now(), changed: make(chan struct{}, 1), exits: make(chan restart.Exit, 1), notice: func(restart.Notice) {}}
}

func (c *container) SetFailed(func(error))              {}
func (c *container) SetNotice(set func(restart.Notice)) { c.notice = set }
func (c *container) Resume(id string) bool              { c.resumed = id; return true }
func (c *container) at(n int) (id, address string) {
	return fmt.Sprintf("web-%d", n), fmt.Sprintf("172.17.0.%d", n)
}
func (c *container) state() (lives int, isUp, isAway bool) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	return c.lives, c.isUp, c.isAway
}

func (c *container) change(f func()) {
	c.stateMu.Lock()
	f()
	c.stateMu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
	synctest.Wait()
}

// ends ends the instance, and starts a new one if another is true.
func (c *container) ends(exit restart.Exit, another bool) {
	c.change(func() {
		c.isUp = another
		if another {
			c.lives, c.since = c.lives+1, time.Now()
		}
		c.exits <- exit
	})
}

func (c *container) restart() {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	c.lives, c.since = c.lives+1, time.Now()
	c.isUp, c.restarted = true, append(c.restarted, time.Since(c.zero))
}

var away = restart.Notice{Reason: probe.ReasonRuntimeUnavailable, Detail: "docker.sock: connection refused"}

func (c *container) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	for began := began; ; {
		lives, isUp, isAway := c.state()
		id, address := c.at(lives)
		switch {
		case isAway:
			c.notice(away)
		case isUp && began != nil:
			c.notice(restart.Notice{})
			began(restart.Begun{ID: id, Since: c.since, Address: address})
			began = nil
		case isUp:
			c.notice(restart.Notice{})
		default:
			c.notice(restart.Notice{Reason: probe.ReasonExited, Detail: "container web has exited"})
		}
		select {
		case <-ctx.Done():
			return restart.Exit{Err: context.Cause(ctx)}
		case exit := <-c.exits:
			return exit
		case <-c.changed:
		case <-end:
			if c.restart(); isUp {
				return restart.Exit{}
			}
		}
	}
}

// While a runtime does not respond, nothing is terminated and no verdict changes; a target that still fails afterwards
// is restarted.
func TestNothingIsRestartedWhileTheRuntimeIsAway(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		c, web := newContainer(), &fakeHandler{}
		h.apply(only(c))
		h.probes(map[string]probe.Handler{"web": web})
		h.sleep(3 * s)
		h.expect("web", "web-1", probe.Running, "")
		c.change(func() { c.isAway = true })
		in := h.expect("web", "web-1", probe.Running, probe.ReasonRuntimeUnavailable)
		if st, _ := h.engine.Target("web"); st.State != probe.StateBlind || !st.Ready || in.Detail != away.Detail || !in.Managed {
			t.Errorf("%v, ready %v: %+v", st.State, st.Ready, in)
		}
		web.setFailing(true)
		h.sleep(60 * s)
		in = h.expect("web", "web-1", probe.Running, probe.ReasonRuntimeUnavailable)
		if st, _ := h.engine.Target("web"); st.State != probe.StateFailing || in.Managed || in.Address != "172.17.0.1" {
			t.Errorf("%v: %+v", st.State, in)
		}
		h.expectTimes("restarted at", c.restarted)
		c.change(func() { c.isAway = false })
		h.sleep(time.Millisecond)
		h.expectTimes("restarted at", c.restarted, 63*s)
		if in := h.instance("web"); in.ID != "web-2" || in.Address != "172.17.0.2" || !in.Since.Equal(c.since) {
			t.Errorf("%+v", in)
		}
	})
}

func TestAnInstanceThatRecoversWhileTheRuntimeIsAwayGoesOn(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		c, web := newContainer(), &fakeHandler{}
		h.apply(only(c))
		h.probes(map[string]probe.Handler{"web": web})
		h.sleep(3 * s)
		c.change(func() { c.isAway = true })
		web.setFailing(true)
		h.sleep(10 * s)
		web.setFailing(false)
		h.sleep(10 * s)
		c.change(func() { c.isAway = false })
		h.sleep(time.Minute)
		h.expect("web", "web-1", probe.Running, "")
		h.expectTimes("restarted at", c.restarted)
	})
}

// A restart by hand between the verdict and the restart by the engine is not a crash, and affects neither budget nor
// back-off.
func TestARestartByOthersIsNotOurs(t *testing.T) {
	inBubble(t, restart.Budget{Max: 1, Per: time.Hour}, func(h *harness) {
		c, web := newContainer(), &fakeHandler{}
		h.apply(only(c))
		h.probes(map[string]probe.Handler{"web": web})
		for range 3 {
			h.sleep(3 * s)
			web.setFailing(true)
			c.change(func() { // when the driver is asked, the container is already another instance
				c.lives, c.since = c.lives+1, time.Now()
				c.exits <- restart.Exit{Code: 137, ByOthers: true}
			})
			web.setFailing(false)
		}
		h.sleep(3 * s)
		in := h.expect("web", "web-4", probe.Running, "")
		h.expectText(in.Detail, "stopped or restarted by others, exit status 137")
		web.setFailing(true)
		h.sleep(2 * s)
		h.expectTimes("restarted at", c.restarted, 12*s, 12*s) // the second after its back-off
	})
}

// hasty is a container whose driver finds a new instance whenever it is asked for a restart.
type hasty struct{ *container }

func (c hasty) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	id, address := c.at(c.lives)
	began(restart.Begun{ID: id, Address: address})
	select {
	case <-end:
		c.lives++
		c.restarted = append(c.restarted, time.Since(c.zero))
		return restart.Exit{Code: 143, ByOthers: c.lives < 4}
	case <-ctx.Done():
		return restart.Exit{Err: context.Cause(ctx)}
	}
}

func TestARestartThatOthersHaveMadeIsNotCharged(t *testing.T) {
	inBubble(t, restart.Budget{Max: 1, Per: time.Hour}, func(h *harness) {
		c := hasty{newContainer()}
		h.apply(map[string]restart.Unit{"web": {Driver: c}, "other": {Driver: newDriver("other", healthy)}})
		h.probes(map[string]probe.Handler{"web": &fakeHandler{failing: true}, "other": &fakeHandler{}})
		h.sleep(20 * s)
		h.expectTimes("asked at", c.restarted, 0, 0, 0, 0, 10*s) // two by others, two without back-off, and one after it
		if m, _ := h.control.Memory("web"); m.Charged.IsZero() || m.Exits != 3 {
			t.Errorf("%+v", m)
		}
	})
}

// A container without a restart policy of its own is started again, with the back-off of a crash loop.
func TestAnAttachedContainerThatCrashesIsStartedAgain(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		c := newContainer()
		h.apply(only(c))
		h.probes(map[string]probe.Handler{"web": &fakeHandler{}})
		for n := range 3 {
			c.ends(restart.Exit{Code: 1}, false)
			if st, _ := h.engine.Target("web"); st.Ready != (n == 0) { // the first restart needs no back-off
				t.Errorf("ready after a crash: %+v", st)
			}
			h.sleep(11 * s)
		}
		h.sleep(20 * s)
		h.expectTimes("started at", c.restarted, 0, 21*s, 42*s)
		h.expect("web", "web-4", probe.Running, probe.ReasonCrashLoop)
	})
}

func TestTheRuntimesOwnRestartIsAnotherInstance(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		c := newContainer()
		h.apply(only(c))
		h.probes(map[string]probe.Handler{"web": &fakeHandler{}})
		h.sleep(3 * s)
		c.ends(restart.Exit{Code: 1}, true)
		h.sleep(3 * s)
		in := h.expect("web", "web-2", probe.Running, "")
		if len(c.restarted) > 0 || in.Restarts != 1 || in.Address != "172.17.0.2" {
			t.Errorf("%v, %+v", c.restarted, in)
		}
	})
}

func TestAStoppedContainerIsLeftAloneByItsPolicyAndSeenWhenItRuns(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		c := newContainer()
		h.apply(map[string]restart.Unit{"web": {Driver: c, Policy: restart.Never}})
		h.probes(map[string]probe.Handler{"web": &fakeHandler{}})
		h.sleep(3 * s)
		c.ends(restart.Exit{Code: 1}, false)
		h.sleep(time.Hour)
		if in := h.instance("web"); in.Phase == probe.Running || len(c.restarted) > 0 {
			t.Errorf("%+v", in)
		}
		c.change(func() { c.isUp, c.lives = true, 2 })
		h.expect("web", "web-2", probe.Running, "")
	})
}

// The instance of an earlier engine remains as it was, at its address, until the runtime responds.
func TestAnInstanceGoesOnThoughTheRuntimeIsAwayAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContainer()
		killed, _ := generation(t, revised(c, restart.Always), nil, func(h *harness, _ map[string]string) { h.sleep(time.Minute) })
		c.isAway = true
		generation(t, revised(c, restart.Always), killed, func(h *harness, goOn map[string]string) {
			h.sleep(time.Minute)
			in := h.expect("web", "web-1", probe.Running, probe.ReasonRuntimeUnavailable)
			if goOn["web"] != "web-1" || in.Address != "172.17.0.1" {
				t.Errorf("%v, %+v", goOn, in)
			}
			c.change(func() { c.isAway = false })
			if in = h.expect("web", "web-1", probe.Running, ""); in.Restarts != 0 || in.Address != "172.17.0.1" {
				t.Errorf("%+v", in)
			}
		})
	})
}
