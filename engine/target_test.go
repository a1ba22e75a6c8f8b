package engine_test

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// sums is the summary of a target's probes.
type sums struct{ started, ready, live bool }

func TestATargetSummarizesItsProbes(t *testing.T) {
	const yes, no, open = probe.Success, probe.Failure, probe.Unknown
	other := named(readiness, "other")
	cases := []struct {
		name   string
		probes map[probe.ID]probe.Outcome
		phase  probe.Phase
		want   sums
	}{
		{"K98 no startup probe: it has started", answers{liveness: yes}, probe.Running, sums{true, true, true}},
		{"K98 a startup probe that passes", answers{startup: yes}, probe.Running, sums{true, true, true}},
		{"K98 a startup probe that fails", answers{startup: no}, probe.Running, sums{false, false, false}},
		{"K98 a startup probe that is undecided", answers{startup: open}, probe.Running, sums{false, false, true}},
		{"K98 what does not run has not started", answers{startup: yes}, probe.Ended, sums{false, false, false}},
		{"K113 only what has started is ready", answers{startup: open, readiness: yes}, probe.Running, sums{false, false, true}},
		{"K113 no readiness probe: ready when it has started", answers{startup: yes, liveness: yes}, probe.Running, sums{true, true, true}},
		{"K113 a readiness probe that passes", answers{readiness: yes}, probe.Running, sums{true, true, true}},
		{"K113 a readiness probe that fails", answers{readiness: no}, probe.Running, sums{true, false, true}},
		{"K113 a readiness probe that knows nothing", answers{readiness: open}, probe.Running, sums{true, false, true}},
		{"K113 all readiness probes have to pass", answers{readiness: yes, other: no}, probe.Running, sums{true, false, true}},
		{"K113 liveness does not make it unready", answers{readiness: yes, liveness: no}, probe.Running, sums{true, true, false}},
		{"K113 what does not run is not ready", answers{readiness: yes}, probe.Waiting, sums{false, false, true}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				set := probe.Set{}
				for id, outcome := range c.probes {
					set[id] = with(says(outcome))
				}
				apply(t, e, set)
				in := instance("a")
				in.Phase = c.phase
				e.Report(in)
				pass(time.Minute)
				checkSums(t, e, c.want)
			})
		})
	}
}

type answers = map[probe.ID]probe.Outcome

func checkSums(t *testing.T, e *engine.Engine, want sums) {
	t.Helper()
	st, ok := e.Target("web")
	if got := (sums{st.Started, st.Ready, st.Live}); !ok || got != want {
		t.Errorf("got %+v, want %+v: %+v", got, want, st)
	}
}

func TestAnotherInstanceIsNotReadyUntilItsOwnProbesPass(t *testing.T) { // K115
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		p := with(says(probe.Success))
		p.Rule.InitialDelay = 5 * time.Second
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("a"))
		pass(time.Minute)
		checkSums(t, e, sums{true, true, true})
		e.Report(instance("b"))
		pass(4 * time.Second)
		checkSums(t, e, sums{true, false, true})
		pass(2 * time.Second)
		checkSums(t, e, sums{true, true, true})
	})
}
