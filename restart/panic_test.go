package restart_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// brokenDriver is a driver whose Run does not return the first two times.
type brokenDriver struct {
	*fakeDriver
	runs  int
	fails func()
}

func (d *brokenDriver) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	if d.runs++; d.runs == 2 {
		began(restart.Begun{ID: "broken"})
	}
	if d.runs <= 2 {
		d.fails()
	}
	return d.fakeDriver.Run(ctx, began, end)
}

func TestADriverThatPanicsOrEndsItsGoroutineIsBackedOff(t *testing.T) {
	for name, test := range map[string]struct {
		fails  func()
		detail string
	}{
		"panic":  {func() { panic("oops") }, "driver panicked: oops"},
		"Goexit": {runtime.Goexit, "driver has ended its goroutine"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				d := &brokenDriver{fakeDriver: newDriver("web", healthy), fails: test.fails}
				h.apply(map[string]restart.Unit{"web": {Driver: d}})
				h.sleep(time.Second)
				in := h.instance("web")
				if in.Phase != probe.Ended || !strings.Contains(in.Detail, "next start in 10s (back-off)") || !strings.Contains(in.Detail, test.detail) {
					t.Errorf("after two runs the instance is %+v", in)
				}
				h.sleep(20 * time.Second)
				if in := h.instance("web"); in.Phase != probe.Running || in.ID != "web-0" || d.runs != 3 {
					t.Errorf("after the back-off the instance is %+v, in run %d", in, d.runs)
				}
			})
		})
	}
}
