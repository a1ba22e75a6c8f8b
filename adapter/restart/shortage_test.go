package restart_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/probe"
)

// lacking is an External driver that cannot begin a restart until there is room.
type lacking struct {
	*fakeDriver
	roomAfter time.Duration // since the first request
	restarts  int
}

func (*lacking) External() {}

func (d *lacking) Run(ctx context.Context, began func(string), end <-chan time.Duration) restart.Exit {
	began(fmt.Sprintf("web-%d", d.restarts))
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
	return restart.Exit{}
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
		d := &lacking{fakeDriver: newDriver("web", healthy), roomAfter: 69 * s}
		failingUnit(h, d)
		in := h.expect("web", "web-0", probe.Running, probe.ReasonResources)
		h.expectText(in.Detail, "retrying every 2s: the engine cannot start it now: too many open files")
		h.sleep(71 * s)
		var want []time.Duration
		for at := time.Duration(0); at <= 70*s; at += 2 * s {
			want = append(want, at)
		}
		h.expectTimes("restarted at", d.starts(), want...)
		if in := h.instance("web"); in.ID != "web-1" || in.Restarts != 1 {
			t.Errorf("got %+v", in)
		}
		log := h.log.String()
		for text, n := range map[string]int{"instance not restarted, retrying": 6, "instance goes on": 6, "probe failing, terminating instance": 7} {
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
		h.sleep(4 * s)
		handler.setFailing(false)
		h.sleep(time.Minute)
		h.expectTimes("restarted at", d.starts(), 0, 2*s, 4*s)
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
