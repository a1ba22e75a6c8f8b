package engine_test

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// ended returns the instance of "web" with this ID after its end.
func ended(id string) probe.Instance {
	in := instance(id)
	in.Phase = probe.Ended
	return in
}

// Both engines have a liveness probe with one failure in its run, and then get a new instance. The table has the differences.
func TestTheKubeletsAccidentsAreCopiedOnRequestOnly(t *testing.T) {
	cases := []struct {
		name          string
		compatibility probe.Compatibility
		notRunning    probe.Verdict // of liveness, while the instance has ended
		failures      int           // until the next instance fails
	}{
		{"mended", probe.Mended, probe.Undecided, 3},
		{"kubelet", probe.Kubelet, probe.Failing, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, engine.Config{Compatibility: c.compatibility}, func(t *testing.T, e *engine.Engine) {
				h := says(probe.Failure)
				apply(t, e, probe.Set{liveness: with(h)})
				e.Report(instance("a"))
				for len(h.attempts()) < 2 {
					pass(time.Second)
				}
				e.Report(ended("a"))
				pass(0)
				want(t, e, liveness, c.notRunning)
				before := len(h.attempts())
				e.Report(instance("b"))
				pass(time.Hour)
				want(t, e, liveness, probe.Failing)
				if got := len(h.attempts()) - before; got != c.failures {
					t.Errorf("failing after %d attempts, want %d", got, c.failures)
				}
			})
		})
	}
}

func TestSuccessDurationsAreKeptForTheKubeletsMetricsOnly(t *testing.T) {
	for _, c := range []struct {
		compatibility probe.Compatibility
		kept          bool
	}{{probe.Mended, false}, {probe.Kubelet, true}} {
		bubble(t, engine.Config{Compatibility: c.compatibility}, func(t *testing.T, e *engine.Engine) {
			h := says(probe.Success)
			h.take(20 * time.Millisecond)
			apply(t, e, probe.Set{liveness: with(h)})
			e.Report(instance("a"))
			pass(time.Minute)
			times, ok := e.SuccessDurations(liveness)
			if ok != c.kept || (c.kept && times.Count() != uint64(len(h.attempts()))) {
				t.Errorf("%v: got %+v, %v", c.compatibility, times, ok)
			}
		})
	}
}

func TestSuccessDurationsFollowAProbesCompatibility(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		set := func(c probe.Compatibility) {
			p := with(h)
			p.Rule.Compatibility = c
			apply(t, e, probe.Set{liveness: p})
		}
		set(probe.Mended)
		e.Report(instance("a"))
		pass(time.Minute)
		for _, c := range []probe.Compatibility{probe.Kubelet, probe.Mended, probe.Kubelet} {
			set(c)
			before := len(h.attempts())
			pass(time.Minute)
			durations, ok := e.SuccessDurations(liveness)
			want := uint64(0)
			if c == probe.Kubelet {
				want = uint64(len(h.attempts()) - before)
			}
			if ok != (c == probe.Kubelet) || durations.Count() != want {
				t.Errorf("%v: got %d durations, %v, want %d", c, durations.Count(), ok, want)
			}
			if g, _ := e.Watch(liveness); !g.Passing() {
				t.Errorf("%v: the gauge is %v", c, g.Verdict())
			}
		}
	})
}
