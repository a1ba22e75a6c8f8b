package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// broken is a handler whose attempts cannot be made.
func broken(why probe.Reason) *script { return &script{answer: probe.Broken(why, "no such file")} }

// TestTroubleHasOneRule includes states of targets that look well according to their verdicts.
func TestTroubleHasOneRule(t *testing.T) {
	failing := &script{answer: probe.Fail("test.failing", "it fails")}
	slow := &script{answer: probe.Warn("test.slow", "took 2s")}
	second, watched := probe.ID{Target: "web", Kind: probe.Readiness, Name: "ipv6"}, probe.ID{Target: "web", Kind: probe.Liveness, Name: "watched"}
	running := probe.Instance{ID: "1", Phase: probe.Running}
	at := func(in probe.Instance, why probe.Reason) probe.Instance {
		in.Reason, in.Detail = why, "exit status 3"
		return in
	}
	for name, c := range map[string]struct {
		probes map[probe.ID]probe.Handler
		in     probe.Instance
		want   probe.TargetState
		cause  engine.Cause
		ready  bool
	}{
		"ready":                      {map[probe.ID]probe.Handler{readiness: says(probe.Success)}, running, probe.StateReady, engine.Cause{}, true},
		"ready with warnings":        {map[probe.ID]probe.Handler{readiness: slow}, running, probe.StateDegraded, engine.Cause{Probe: readiness, Reason: "test.slow", Detail: "took 2s"}, true},
		"liveness warns, too":        {map[probe.ID]probe.Handler{readiness: says(probe.Success), liveness: slow}, running, probe.StateDegraded, engine.Cause{Probe: liveness, Reason: "test.slow", Detail: "took 2s"}, true},
		"warns, and is not ready":    {map[probe.ID]probe.Handler{readiness: broken(probe.ReasonResources), liveness: slow}, running, probe.StateStarting, engine.Cause{Probe: readiness, Reason: probe.ReasonResources, Detail: "no such file"}, false},
		"startup warned":             {map[probe.ID]probe.Handler{startup: slow}, running, probe.StateReady, engine.Cause{}, true},
		"warns in a crash loop":      {map[probe.ID]probe.Handler{readiness: slow}, at(running, probe.ReasonCrashLoop), probe.StateCrashLooping, engine.Cause{Probe: readiness, Reason: probe.ReasonCrashLoop, Detail: "exit status 3"}, true},
		"down from the start":        {map[probe.ID]probe.Handler{readiness: failing}, running, probe.StateNotReady, engine.Cause{Probe: readiness, Reason: "test.failing", Detail: "it fails"}, false},
		"liveness fails":             {map[probe.ID]probe.Handler{liveness: failing, readiness: says(probe.Success)}, running, probe.StateFailing, engine.Cause{Probe: liveness, Reason: "test.failing", Detail: "it fails"}, true},
		"liveness is worse":          {map[probe.ID]probe.Handler{liveness: failing, readiness: failing}, running, probe.StateFailing, engine.Cause{Probe: liveness, Reason: "test.failing", Detail: "it fails"}, false},
		"startup fails":              {map[probe.ID]probe.Handler{startup: failing, readiness: says(probe.Success)}, running, probe.StateFailing, engine.Cause{Probe: startup, Reason: "test.failing", Detail: "it fails"}, false},
		"liveness cannot be made":    {map[probe.ID]probe.Handler{liveness: broken("exec.start")}, running, probe.StateBlind, engine.Cause{Probe: liveness, Reason: "exec.start", Detail: "no such file"}, true},
		"readiness cannot be made":   {map[probe.ID]probe.Handler{readiness: broken("plugin.trap")}, running, probe.StateBlind, engine.Cause{Probe: readiness, Reason: "plugin.trap", Detail: "no such file"}, false},
		"the engine lacks something": {map[probe.ID]probe.Handler{liveness: broken(probe.ReasonResources)}, running, probe.StateReady, engine.Cause{}, true},
		"a reload is wrong":          {map[probe.ID]probe.Handler{liveness: failing}, at(running, probe.ReasonReload), probe.StateRestartBlocked, engine.Cause{Probe: liveness, Reason: probe.ReasonReload, Detail: "exit status 3"}, true},
		"budget is spent":            {map[probe.ID]probe.Handler{liveness: failing}, at(running, probe.ReasonBudget), probe.StateRestartBlocked, engine.Cause{Probe: liveness, Reason: probe.ReasonBudget, Detail: "exit status 3"}, true},
		"in a crash loop":            {map[probe.ID]probe.Handler{readiness: says(probe.Success)}, at(running, probe.ReasonCrashLoop), probe.StateCrashLooping, engine.Cause{Reason: probe.ReasonCrashLoop, Detail: "exit status 3"}, true},
		"waits for its back-off":     {nil, at(probe.Instance{ID: "1", Phase: probe.Ended}, probe.ReasonBackOff), probe.StateCrashLooping, engine.Cause{Reason: probe.ReasonBackOff, Detail: "exit status 3"}, false},
		"restarts":                   {nil, probe.Instance{ID: "1", Phase: probe.Ended, Reason: probe.ReasonExited}, probe.StateRestarting, engine.Cause{Reason: probe.ReasonExited}, false},
		"cannot start":               {map[probe.ID]probe.Handler{liveness: failing}, at(probe.Instance{ID: "none", Phase: probe.Waiting}, probe.ReasonNoStart), probe.StateCannotStart, engine.Cause{Reason: probe.ReasonNoStart, Detail: "exit status 3"}, false},
		"has completed":              {nil, probe.Instance{ID: "1", Phase: probe.Gone, Retained: true, Reason: probe.ReasonCompleted}, probe.StateCompleted, engine.Cause{Reason: probe.ReasonCompleted}, false},
		"has exited":                 {nil, at(probe.Instance{ID: "1", Phase: probe.Gone, Retained: true}, probe.ReasonExited), probe.StateExited, engine.Cause{Reason: probe.ReasonExited, Detail: "exit status 3"}, false},
		"was ended as it failed":     {nil, at(probe.Instance{ID: "1", Phase: probe.Gone, Retained: true}, probe.ReasonEnded), probe.StateExited, engine.Cause{Reason: probe.ReasonEnded, Detail: "exit status 3"}, false},
		"waits for its start":        {nil, probe.Instance{ID: "1", Phase: probe.Waiting}, probe.StateStarting, engine.Cause{}, false},
		"terminates":                 {map[probe.ID]probe.Handler{readiness: failing}, probe.Instance{ID: "1", Phase: probe.Running, Terminating: true}, probe.StateStopped, engine.Cause{}, false},
		"only warns":                 {map[probe.ID]probe.Handler{readiness: says(probe.Success), second: failing}, running, probe.StateDegraded, engine.Cause{Probe: second, Reason: "test.failing", Detail: "it fails"}, true},
		"liveness only warns":        {map[probe.ID]probe.Handler{readiness: says(probe.Success), watched: failing}, running, probe.StateDegraded, engine.Cause{Probe: watched, Reason: "test.failing", Detail: "it fails"}, true},
		"only warns, is not ready":   {map[probe.ID]probe.Handler{readiness: failing, second: failing}, running, probe.StateNotReady, engine.Cause{Probe: readiness, Reason: "test.failing", Detail: "it fails"}, false},
		"only warns, alone":          {map[probe.ID]probe.Handler{second: says(probe.Success)}, running, probe.StateReady, engine.Cause{}, true},
		"only warns, nothing known":  {map[probe.ID]probe.Handler{second: broken(probe.ReasonResources)}, running, probe.StateReady, engine.Cause{}, true},
		"only warns, and is blind":   {map[probe.ID]probe.Handler{second: broken("exec.start")}, running, probe.StateBlind, engine.Cause{Probe: second, Reason: "exec.start", Detail: "no such file"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				set := probe.Set{}
				for id, h := range c.probes {
					p := with(h)
					if id == second || id == watched {
						p.Rule.Effect = probe.EffectWarn
					}
					set[id] = p
				}
				apply(t, e, set)
				c.in.Target, c.in.Since = "web", time.Now()
				e.Report(c.in)
				pass(5 * time.Minute)
				got, _ := e.Target("web")
				if got.State != c.want || got.Cause != c.cause || got.Ready != c.ready {
					t.Errorf("%v, cause %+v, ready %v; want %v, %+v, %v", got.State, got.Cause, got.Ready, c.want, c.cause, c.ready)
				}
				checkStates(t, e)
			})
		})
	}
}

// A managed instance that fails a probe with the effect warn is not on hold, remains live, accepts requests and has a history.
func TestAProbeThatOnlyWarnsLeavesItsInstanceAlone(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h, ipv6 := says(probe.Success), says(probe.Success)
		p := with(h)
		p.Rule = probe.Rule{Effect: probe.EffectWarn, Period: time.Second}
		second := with(ipv6)
		second.Rule = p.Rule
		apply(t, e, probe.Set{readiness: with(says(probe.Success)), liveness: p, {Target: "web", Kind: probe.Readiness, Name: "ipv6"}: second})
		in := instance("1")
		in.Managed = true
		e.Report(in)
		pass(10 * time.Second)
		h.give(probe.Fail("test.deadlock", "no progress"))
		pass(3 * time.Second)
		check := func(state probe.TargetState, gateway probe.GatewayState) {
			t.Helper()
			st, _ := e.Target("web")
			if st.State != state || st.Gateway != gateway || !st.Live || !st.Ready || !st.Since.After(st.Instance.Since) && state == probe.StateDegraded {
				t.Errorf("got %v, %v, want %v, %v: %+v", st.State, st.Gateway, state, gateway, st)
			}
		}
		check(probe.StateDegraded, probe.GatewayReady)
		if st := status(t, e, liveness); st.Verdict != probe.Failing || st.OnHold || !st.Warned {
			t.Errorf("got %+v", st)
		}
		ipv6.give(probe.Fail(probe.ReasonTCPUnreachable, "no route"))
		pass(3 * time.Second)
		check(probe.StateDegraded, probe.GatewayDegraded)
		h.give(probe.Succeed(""))
		ipv6.give(probe.Succeed(""))
		pass(3 * time.Second)
		check(probe.StateReady, probe.GatewayReady)
		past := e.Records().History("web")
		for i, want := range []probe.TargetState{probe.StateDegraded, probe.StateDegraded, probe.StateDegraded, probe.StateReady} {
			if i >= len(past) || past[i].State != want {
				t.Fatalf("got the history %+v", past)
			}
		}
	})
}

// checkStates compares the states maintained by the engine with those of its targets.
func checkStates(t *testing.T, e *engine.Engine) {
	t.Helper()
	var want engine.TargetStates
	var trouble []string
	for s := range e.Select(context.Background(), engine.Filter{}) {
		want[s.State]++
		if s.State.InTrouble() {
			trouble = append(trouble, s.Target)
		}
		if s.Since.IsZero() && s.State != probe.StateAbsent {
			t.Errorf("%s is %v since no time", s.Target, s.State)
		}
	}
	if got := e.States(); got != want {
		t.Fatalf("counted %v, want %v", got, want)
	}
	var listed []string
	inTrouble := engine.Filter{State: probe.TargetState.InTrouble}
	for s := range e.Select(context.Background(), inTrouble) {
		listed = append(listed, s.Target)
	}
	if !slices.Equal(listed, trouble) || e.Count(context.Background(), inTrouble) != len(trouble) {
		t.Fatalf("listed %v, counted %d, want %v", listed, e.Count(context.Background(), inTrouble), trouble)
	}
}

// TestStatesAreKeptUpToDate randomly changes everything that affects a state.
func TestStatesAreKeptUpToDate(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
			answers := map[probe.ID]*script{}
			reasons := []probe.Reason{"", probe.ReasonBudget, probe.ReasonBackOff, probe.ReasonNoStart, probe.ReasonExited, probe.ReasonCrashLoop}
			for range 200 {
				name := fmt.Sprintf("web-%d", random.IntN(8))
				id := probe.ID{Target: name, Kind: probe.Kind(1 + random.IntN(3))}
				switch random.IntN(4) {
				case 0:
					if answers[id] == nil {
						answers[id] = says(probe.Outcome(random.IntN(4)))
					} else {
						delete(answers, id)
					}
					set := probe.Set{}
					for id, s := range answers {
						set[id] = with(s)
					}
					apply(t, e, set)
				case 1:
					if s := answers[id]; s != nil {
						s.say(probe.Outcome(random.IntN(4)))
					}
				case 2:
					e.Report(probe.Instance{
						Target: name, ID: fmt.Sprint(random.IntN(3)), Phase: probe.Phase(random.IntN(5)), Since: time.Now(), Retained: random.IntN(2) == 0,
						Managed: random.IntN(2) == 0, Terminating: random.IntN(8) == 0, Reason: reasons[random.IntN(len(reasons))],
					})
				case 3:
					pass(time.Duration(random.IntN(60)) * time.Second)
				}
				synctest.Wait()
				checkStates(t, e)
			}
		})
	}
}

func TestSubscriberToTargetsLearnsOfEachState(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		answer := says(probe.Success)
		apply(t, e, probe.Set{readiness: with(answer)})
		e.Report(instance("1"))
		pass(time.Minute)
		changes := e.SubscribeTargets()
		defer changes.Close()
		expect := func(want string) {
			t.Helper()
			soon, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			got := "nothing"
			if s, err := changes.Next(soon); err == nil {
				got = fmt.Sprintf("%s %v %d removed: %v", s.Target, s.State, s.Instance.Restarts, s.Removed)
			}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		expect("web ready 0 removed: false")
		expect("nothing")
		answer.say(probe.Failure)
		pass(time.Minute)
		expect("web not_ready 0 removed: false")
		e.Report(probe.Instance{Target: "web", ID: "1", Phase: probe.Ended, Since: time.Now(), Reason: probe.ReasonBackOff})
		expect("web crash_looping 0 removed: false")
		again := instance("2")
		again.Restarts = 1
		e.Report(again)
		expect("web starting 1 removed: false")
		apply(t, e, probe.Set{})
		e.Report(probe.Instance{Target: "web"})
		expect("web absent 0 removed: true")
		expect("nothing")
	})
}
