package restart_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// lacking is an External driver that cannot begin a restart until resources are available.
type lacking struct {
	*fakeDriver
	roomAfter time.Duration // since the first request
	restarts  int
	heals     *fakeHandler // the handler that fails until a restart; nil: it continues to fail
}

func (*lacking) SetFailed(func(error)) {}

func (d *lacking) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	began(restart.Begun{ID: fmt.Sprintf("web-%d", d.restarts)})
	select {
	case <-ctx.Done():
		return restart.Exit{}
	case <-end:
	}
	d.callsMu.Lock()
	defer d.callsMu.Unlock()
	if len(d.started) == 0 {
		d.zero = time.Now()
	}
	at := time.Since(d.zero)
	d.started = append(d.started, at)
	if at < d.roomAfter {
		return restart.Exit{Code: -1, Err: fmt.Errorf("%w: too many open files", restart.ErrShortage)}
	}
	d.restarts++
	d.heal()
	return restart.Exit{}
}

// heal needs callsMu.
func (d *lacking) heal() {
	if d.heals != nil {
		d.heals.setFailing(false)
	}
}

func (d *lacking) setHeals(h *fakeHandler) {
	d.callsMu.Lock()
	defer d.callsMu.Unlock()
	d.heals = h
}

// failingUnit applies a unit with the driver and a probe that fails.
func failingUnit(h *harness, d restart.Driver) *fakeHandler {
	handler := &fakeHandler{failing: true}
	h.apply(only(d))
	h.probes(map[string]probe.Handler{"web": handler})
	h.sleep(s) // the first attempt
	return handler
}

func TestARestartThatCannotBeginForAShortageIsRetriedWithoutBackOff(t *testing.T) {
	inBubble(t, restart.Budget{Max: 1, Per: time.Hour}, func(h *harness) {
		d := &lacking{fakeDriver: newDriver("web", healthy), roomAfter: 9 * s}
		d.setHeals(failingUnit(h, d))
		in := h.expect("web", "web-0", probe.Running, probe.ReasonResources)
		h.expectText(in.Detail, "retrying within 20s: the engine lacks resources for this now: too many open files")
		h.sleep(11 * s)
		h.expectTimes("restarted at", d.starts(), 0, 2*s, 3*s, 5*s, 7*s, 8*s, 10*s)
		if in := h.instance("web"); in.ID != "web-1" || in.Restarts != 1 {
			t.Errorf("got %+v", in)
		}
		log := h.log.String()
		for text, n := range map[string]int{"instance not restarted, retrying": 3, "instance goes on": 3, "probe failing, terminating instance": 4} {
			if got := strings.Count(log, text); got != n {
				t.Errorf("the log has %q %d times, want %d:\n%s", text, got, n, log)
			}
		}
	})
}

func TestNoRestartFollowsIfProbesRecoverDuringAShortage(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := &lacking{fakeDriver: newDriver("web", healthy), roomAfter: 7 * s}
		handler := failingUnit(h, d)
		h.sleep(3 * s)
		handler.setFailing(false)
		h.sleep(time.Minute)
		h.expectTimes("restarted at", d.starts(), 0, 2*s, 3*s)
		if in := h.expect("web", "web-0", probe.Running, ""); !in.Managed || in.Restarts != 0 {
			t.Errorf("got %+v", in)
		}
		handler.setFailing(true)
		h.sleep(s)
		if in := h.instance("web"); in.Restarts == 0 {
			t.Errorf("got %+v", in)
		}
	})
}

func TestAnExternalUnitIsReleasedDuringAShortage(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := &lacking{fakeDriver: newDriver("web", healthy), roomAfter: time.Hour}
		failingUnit(h, d)
		h.apply(nil)
		h.sleep(time.Minute)
		if n := len(d.starts()); n != 1 {
			t.Errorf("%d restarts were tried, want 1", n)
		}
	})
}

// interrupted is an External driver whose first restarts are interrupted.
type interrupted struct {
	lacking
	id string
}

func (d *interrupted) Resume(id string) bool {
	d.id = id
	return true
}

func (d *interrupted) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	began(restart.Begun{ID: d.id})
	select {
	case <-ctx.Done():
		return restart.Exit{Code: -1, Err: context.Cause(ctx)}
	case <-end:
	}
	d.callsMu.Lock()
	defer d.callsMu.Unlock()
	if d.restarts++; d.restarts < 3 {
		return restart.Exit{Code: -1, Err: fmt.Errorf("%w: test", restart.ErrInterrupted)}
	}
	d.id += "+"
	d.heal()
	return restart.Exit{}
}

// The instance keeps running, and its restart remains charged to the budget.
func TestARestartThatWasInterruptedIsRetriedAtTheSameInstance(t *testing.T) {
	inBubble(t, restart.Budget{Max: 1, Per: time.Hour}, func(h *harness) {
		d := &interrupted{lacking: lacking{fakeDriver: newDriver("web", healthy)}, id: "web-0"}
		d.setHeals(failingUnit(h, d))
		h.expect("web", "web-0", probe.Running, probe.ReasonOwnership)
		h.sleep(time.Minute)
		if in := h.instance("web"); in.ID != "web-0+" || in.Restarts != 1 || d.restarts != 3 {
			t.Errorf("after %d requests: %+v", d.restarts, in)
		}
	})
}

// Many targets that lack the same resource do not all retry at the same time.
func TestTargetsDoNotRetryTogether(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		units, drivers := map[string]restart.Unit{}, []*fakeDriver{}
		for n := range 100 {
			name := fmt.Sprint("web-", n)
			d := newDriver(name, func(int) behavior { return behavior{err: restart.ErrShortage} })
			units[name], drivers = restart.Unit{Driver: d}, append(drivers, d)
		}
		h.apply(units)
		h.sleep(time.Minute)
		at := map[time.Duration]int{}
		for _, d := range drivers {
			tries := d.starts()
			if len(tries) < 4 || len(tries) > 8 {
				t.Fatalf("%d tries in a minute", len(tries))
			}
			for _, try := range tries[1:] {
				at[try.Truncate(100*time.Millisecond)]++
			}
		}
		for moment, count := range at {
			if count > 30 {
				t.Errorf("%d of 100 targets try again at %v", count, moment)
			}
		}
	})
}

// resumable is an External driver that lacks a resource in its first Run, and resumes an instance.
type resumable struct {
	lacking
	id string
}

func (d *resumable) Resume(id string) bool {
	d.id = id
	return true
}

func (d *resumable) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	began(restart.Begun{ID: d.id})
	select {
	case <-ctx.Done():
		return restart.Exit{}
	case <-end:
		return restart.Exit{Code: -1, Err: restart.ErrShortage}
	}
}

func TestAReloadDuringAShortageMakesNoInstance(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		unit := func(id string) map[string]restart.Unit {
			return map[string]restart.Unit{"web": {Driver: &resumable{id: id}, Revision: "1"}}
		}
		h.apply(unit("first"))
		h.probes(map[string]probe.Handler{"web": &fakeHandler{failing: true}})
		h.sleep(s)
		before := h.instance("web")
		h.apply(unit("second"))
		h.sleep(time.Minute)
		if in := h.instance("web"); in.ID != before.ID || in.Restarts != 0 || !in.Since.Equal(before.Since) {
			t.Errorf("got %+v, after %+v", in, before)
		}
	})
}
