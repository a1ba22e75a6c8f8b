package engine_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// damp configures dampings with the defaults of probe.Damping.
func (c *chain) damp(names ...string) {
	c.t.Helper()
	of := map[string]probe.Damping{}
	for _, name := range names {
		of[name] = probe.Damping{}
	}
	if _, err := c.engine.Change(engine.Change{Dampings: of}); err != nil {
		c.t.Fatal(err)
	}
}

// flap makes a target fail and recover.
func (c *chain) flap(name string, times int) {
	for range times {
		c.say(probe.Failure, name)
		c.say(probe.Success, name)
	}
}

// pastOf returns the entries about dampings in the history of a target.
func (c *chain) pastOf(name string) string {
	var past []string
	for _, tr := range c.engine.Records().History(name) {
		text := tr.State.String()
		if tr.Damped {
			text += " begins: " + string(tr.Reason) + " " + tr.Detail
		}
		if tr.Undamped {
			text += " ends: " + string(tr.Reason)
		}
		past = append(past, text)
	}
	return strings.Join(past, "; ")
}

func TestATargetThatFlapsIsDampedUntilItsPenaltyHasDecayed(t *testing.T) {
	chained(t, "other web", func(c *chain) {
		c.damp("web")
		changes := c.engine.SubscribeTargets()
		defer changes.Close()
		known := polled{}
		c.flap("other", 10)
		c.flap("web", 2)
		c.is("other=ready web=ready")
		st, _ := c.engine.Target("web")
		if d := st.Damping; d == nil || d.Penalty < 1900 || d.Penalty > 2000 || !d.Since.IsZero() || !d.Until.IsZero() {
			t.Errorf("after two flaps the damping is %+v", d)
		}
		if other, _ := c.engine.Target("other"); other.Damping != nil {
			t.Errorf("the damping of a target that is not to be damped is %+v", other.Damping)
		}
		c.say(probe.Failure, "web")
		c.is("other=ready web=damped")
		if got := c.engine.Admin().Suppressed("web"); got != probe.ReasonDamped {
			t.Errorf("suppressed because of %q", got)
		}
		c.say(probe.Success, "web")
		c.is("other=ready web=damped")
		known.poll(changes)
		st, _ = c.engine.Target("web")
		if !st.Ready || st.Gateway != probe.GatewayDown || known["web"].Gateway != probe.GatewayDown || known["web"].Damping == nil || st.Probes[0].Verdict != probe.Passing {
			t.Errorf("the status is %+v, subscribers know %+v", st, known["web"])
		}
		left := time.Until(st.Damping.Until)
		if left < 29*time.Minute || left > 30*time.Minute {
			t.Errorf("it stays damped for %v", left)
		}
		pass(left - time.Second)
		c.is("other=ready web=damped")
		if st, _ := c.engine.Target("web"); time.Since(st.Since) < 29*time.Minute || st.Damping.Penalty > 751 || st.Damping.Penalty < 750 {
			t.Errorf("damped since %v, with the penalty %v", st.Since, st.Damping.Penalty)
		}
		pass(2 * time.Second)
		c.is("other=ready web=ready")
		if known.poll(changes); known["web"].Gateway != probe.GatewayReady || c.engine.Admin().Suppressed("web") != "" {
			t.Errorf("subscribers know %+v, suppressed because of %q", known["web"], c.engine.Admin().Suppressed("web"))
		}
		if got, want := c.pastOf("web"), "not_ready; ready; not_ready; ready; damped begins: restart.damped penalty 29"; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "; damped; damped; ready ends: restart.damped") {
			t.Errorf("the history is %s, want %s…", got, want)
		}
		pass(20 * time.Minute)
		if st, _ := c.engine.Target("web"); st.Damping != nil || len(c.engine.Records().Penalties()) != 0 {
			t.Errorf("the penalty is never forgotten: %+v", st.Damping)
		}
		if stats := c.engine.Stats(); stats.Flaps != 3 || stats.Dampings != 1 || stats.Damped != 0 {
			t.Errorf("%d flaps, %d dampings, %d damped", stats.Flaps, stats.Dampings, stats.Damped)
		}
	})
}

// A target that fails when its damping ends is then in trouble, which is also in the history.
func TestATargetThatStaysDownIsInTroubleWhenItsDampingEnds(t *testing.T) {
	chained(t, "web", func(c *chain) {
		c.damp("web")
		c.flap("web", 2)
		c.say(probe.Failure, "web")
		c.is("web=damped")
		pass(time.Hour)
		c.is("web=not_ready")
		past := c.engine.Records().History("web")
		if last := past[len(past)-1]; !last.Undamped || last.State != probe.StateNotReady {
			t.Errorf("the last transition is %+v", last)
		}
	})
}

// Pauses, and failures that another target explains, are not flaps. A pause takes precedence over damping, which continues
// meanwhile.
func TestWhatIsNotTheFaultOfATargetIsNoFlap(t *testing.T) {
	chained(t, "db web", func(c *chain) {
		c.damp("web")
		c.engine.Admin().Pause("web", paused(""))
		c.flap("web", 5)
		c.engine.Admin().Unpause("web")
		c.depend(map[string][]string{"web": {"db"}})
		c.say(probe.Failure, "db")
		c.flap("web", 5)
		c.say(probe.Success, "db")
		c.is("db=ready web=ready")
		if p := c.engine.Records().Penalty("web"); p != (verdict.Penalty{}) {
			t.Errorf("the penalty is %+v", p)
		}
		c.flap("web", 3)
		c.engine.Admin().Pause("web", paused(""))
		c.is("db=ready web=paused")
		if st, _ := c.engine.Target("web"); st.Gateway != probe.GatewayDraining || c.engine.Admin().Suppressed("web") != probe.ReasonPaused || !c.engine.Records().Penalty("web").IsDamped() {
			t.Errorf("to gateways it is %v, suppressed because of %q, with the penalty %+v", st.Gateway, c.engine.Admin().Suppressed("web"), c.engine.Records().Penalty("web"))
		}
		c.engine.Admin().Unpause("web")
		c.is("db=ready web=damped")
		c.say(probe.Failure, "db", "web")
		c.is("db=not_ready web=unreachable(db)")
		if st, _ := c.engine.Target("web"); st.Gateway != probe.GatewayDown || c.engine.Admin().Suppressed("web") != probe.ReasonDependency {
			t.Errorf("to gateways it is %v, suppressed because of %q", st.Gateway, c.engine.Admin().Suppressed("web"))
		}
		c.engine.Admin().Pause("web", paused(""))
		pass(time.Hour)
		c.engine.Admin().Unpause("web")
		c.is("db=not_ready web=unreachable(db)")
		if c.engine.Records().Penalty("web").IsDamped() {
			t.Error("the penalty does not decay while a target is paused")
		}
	})
}

// A restart by an operator is not a flap; a crash is, and so is a restart because of a failing probe. A target that has exited
// for good no longer flaps, and is in trouble even if it was damped.
func TestEndsOfInstancesAreFlapsUnlessAskedFor(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		apply(t, e, probe.Set{{Target: "web", Kind: probe.Readiness}: every(time.Second, 1, says(probe.Success))})
		if _, err := e.Change(engine.Change{Dampings: map[string]probe.Damping{"web": {}}}); err != nil {
			t.Fatal(err)
		}
		report := func(in probe.Instance) {
			in.Target, in.Managed, in.Since = "web", true, time.Now()
			e.Report(in)
			pass(2 * time.Second)
		}
		n := 0
		end := func(reason probe.Reason) {
			t.Helper()
			n++
			report(probe.Instance{ID: fmt.Sprint(n), Phase: probe.Running, Restarts: int32(n)})
			report(probe.Instance{ID: fmt.Sprint(n), Phase: probe.Ended, Reason: reason, Restarts: int32(n)})
		}
		for range 5 {
			end(probe.ReasonOperatorRestart)
		}
		if p := e.Records().Penalty("web"); p != (verdict.Penalty{}) {
			t.Errorf("after restarts by an operator the penalty is %+v", p)
		}
		for i := range 5 { // the configuration of its process was changed
			id := fmt.Sprint("changed ", i)
			report(probe.Instance{ID: id, Phase: probe.Running})
			report(probe.Instance{ID: id, Phase: probe.Running, Terminating: true})
			report(probe.Instance{ID: id, Phase: probe.Ended, Reason: probe.ReasonEnded})
		}
		if p := e.Records().Penalty("web"); p != (verdict.Penalty{}) {
			t.Errorf("after terminations the penalty is %+v", p)
		}
		for i, reason := range []probe.Reason{probe.ReasonExited, probe.ReasonEnded, probe.ReasonExited} {
			if end(reason); e.Records().Penalty("web").IsDamped() != (i == 2) {
				t.Errorf("after %d ends the penalty is %+v", i+1, e.Records().Penalty("web"))
			}
		}
		report(probe.Instance{ID: "back off", Phase: probe.Waiting, Reason: probe.ReasonBackOff, Restarts: 9})
		if st, _ := e.Target("web"); st.State != probe.StateDamped || st.Gateway != probe.GatewayDown {
			t.Errorf("while it waits for its back-off it is %v, to gateways %v", st.State, st.Gateway)
		}
		report(probe.Instance{ID: "last", Phase: probe.Gone, Reason: probe.ReasonExited, Retained: true})
		if st, _ := e.Target("web"); st.State != probe.StateExited || e.Admin().Suppressed("web") != "" {
			t.Errorf("it is %v once it has exited, suppressed because of %q", st.State, e.Admin().Suppressed("web"))
		}
	})
}

// New settings take effect immediately, and a target without a damping is not damped.
func TestDampingsAreReplaced(t *testing.T) {
	chained(t, "a b", func(c *chain) {
		c.damp("a", "b")
		c.flap("a", 3)
		c.flap("b", 3)
		c.is("a=damped b=damped")
		if _, err := c.engine.Change(engine.Change{Dampings: map[string]probe.Damping{"a": {}, "b": {Suppress: 700}}}); err == nil || !strings.Contains(err.Error(), `damping of target "b": reuse`) {
			t.Errorf("the error is %v", err)
		}
		c.is("a=damped b=damped")
		if _, err := c.engine.Change(engine.Change{Dampings: map[string]probe.Damping{"a": {Reuse: 10_000, Suppress: 20_000}}}); err != nil {
			t.Fatal(err)
		}
		c.is("a=ready b=ready")
		if c.engine.Records().Penalty("b") != (verdict.Penalty{}) || c.engine.Stats().Damped != 0 {
			t.Errorf("b has the penalty %+v, damped are %d", c.engine.Records().Penalty("b"), c.engine.Stats().Damped)
		}
		if past := c.engine.Records().History("b"); !past[len(past)-1].Undamped {
			t.Errorf("the history of b ends with %+v", past[len(past)-1])
		}
		c.flap("b", 5)
		c.is("a=ready b=ready")
	})
}

// No reader ever sees a target as ready that an earlier engine has damped. The time between the engines counts for the decay.
func TestAnEngineGoesOnWithPenalties(t *testing.T) {
	var changed []string
	bubble(t, engine.Config{Recorded: func(target string, r engine.Record) {
		if r == engine.RecordPenalty {
			changed = append(changed, target)
		}
	}}, func(t *testing.T, e *engine.Engine) {
		now := time.Now()
		set, of, penalties := probe.Set{}, map[string]probe.Damping{}, map[string]verdict.Penalty{
			"damped": {Value: 3000, At: now.Add(-10 * time.Minute), Since: now.Add(-20 * time.Minute)},
			"well":   {Value: 3000, At: now.Add(-10 * time.Hour), Since: now.Add(-11 * time.Hour)},
			"free":   {Value: 3000, At: now, Since: now},
		}
		for name := range penalties {
			p := every(time.Second, 1, says(probe.Success))
			p.Target.Static = true
			set[probe.ID{Target: name, Kind: probe.Readiness}] = p
			if name != "free" {
				of[name] = probe.Damping{}
			}
		}
		changes := e.SubscribeTargets()
		defer changes.Close()
		if _, err := e.Change(engine.Change{Set: set, All: true, Dampings: of, Penalties: penalties}); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			for st, ok := changes.Poll(); ok; st, ok = changes.Poll() {
				if st.Target == "damped" && (st.Gateway.TakesRequests() || st.State == probe.StateReady) {
					t.Fatalf("subscribers see %v, to gateways %v", st.State, st.Gateway)
				}
			}
			pass(time.Second)
		}
		for name, want := range map[string]probe.TargetState{"damped": probe.StateDamped, "well": probe.StateReady, "free": probe.StateReady} {
			if st, _ := e.Target(name); st.State != want {
				t.Errorf("%s is %v, want %v", name, st.State, want)
			}
		}
		if st, _ := e.Target("damped"); time.Until(st.Damping.Until) > 21*time.Minute || time.Until(st.Damping.Until) < 19*time.Minute {
			t.Errorf("it is damped for another %v, want 20m", time.Until(st.Damping.Until))
		}
		if len(changed) == 0 || changed[0] != "damped" {
			t.Errorf("changed are the penalties of %v", changed)
		}
		changed = nil
		pass(time.Hour)
		if len(changed) != 2 || e.Records().Penalty("damped") != (verdict.Penalty{}) { // the damping ends, and then the penalty is removed
			t.Errorf("changed are the penalties of %v, there is %+v", changed, e.Records().Penalty("damped"))
		}
		if _, err := e.Change(engine.Change{Dampings: map[string]probe.Damping{"well": {Max: 1}}}); err == nil {
			t.Error("a change with invalid limits is applied")
		}
	})
}

// After each of many random flaps, pauses and waits, all readers agree with a model of penalties.
func TestDampedTargetsAreThoseThatTheModelDamps(t *testing.T) {
	tier.Slow(t)
	const names = "a b c d e"
	rule := probe.Damping{HalfLife: time.Minute, Max: 4 * time.Minute}.WithDefaults()
	seen := 0
	for seed := range uint64(5) {
		chained(t, names, func(c *chain) {
			r := rand.New(rand.NewPCG(seed, 24))
			all, fails, isPaused, penalties := strings.Fields(names), map[string]bool{}, map[string]bool{}, map[string]verdict.Penalty{}
			of := map[string]probe.Damping{}
			for _, name := range all[1:] { // a is never damped
				of[name] = rule
			}
			if _, err := c.engine.Change(engine.Change{Dampings: of}); err != nil {
				t.Fatal(err)
			}
			for range 120 {
				name := all[r.IntN(len(all))]
				switch r.IntN(12) {
				case 0:
					c.engine.Admin().Pause(name, paused(""))
					isPaused[name] = true
				case 1, 2:
					c.engine.Admin().Unpause(name)
					isPaused[name] = false
				case 3:
					pass(time.Duration(r.Int64N(int64(2 * time.Minute))))
				default:
					fails[name] = !fails[name]
					c.answers[name].say([]probe.Outcome{probe.Success, probe.Failure}[one(fails[name])])
				}
				pass(1500 * time.Millisecond)
				var want []string
				for _, name := range all {
					st, _ := c.engine.Target(name)
					now := time.Now()
					if d, ok := of[name]; ok {
						p := verdict.Decayed(d, penalties[name], now)
						if since := st.Probes[0].Since; fails[name] && !isPaused[name] && now.Sub(since) < 1500*time.Millisecond {
							p = verdict.AfterFlap(d, verdict.Decayed(d, penalties[name], since), since)
						}
						penalties[name] = verdict.Decayed(d, p, now)
					}
					state := probe.StateReady
					switch {
					case isPaused[name]:
						state = probe.StatePaused
					case penalties[name].IsDamped():
						state = probe.StateDamped
						seen++
					case fails[name]:
						state = probe.StateNotReady
					}
					want = append(want, name+"="+state.String())
				}
				c.is(strings.Join(want, " "))
			}
		})
	}
	if seen == 0 {
		t.Error("the model has damped nothing")
	}
}

// The start of an engine is neither a flap of a target that already failed, nor the begin of a damping.
func TestATargetThatFailsSinceAnEarlierEngineHasNotFlapped(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, first *engine.Engine) {
		set := probe.Set{}
		for _, kind := range []probe.Kind{probe.Readiness, probe.Liveness} {
			p := every(time.Second, 1, says(probe.Failure))
			p.Target.Static = true
			set[probe.ID{Target: "web", Kind: kind}] = p
		}
		if _, err := first.Change(engine.Change{Set: set}); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		second := engine.New(engine.Config{})
		now := time.Now()
		change := engine.Change{
			Set: set, Memories: memories(first), Dampings: map[string]probe.Damping{"web": {}, "damped": {}},
			Penalties: map[string]verdict.Penalty{"damped": {Value: 3000, At: now, Since: now}},
		}
		for _, name := range []string{"web", "damped"} { // a driver may report it earlier
			second.Report(probe.Instance{Target: name, ID: probe.StaticID, Phase: probe.Running, Since: now})
		}
		if _, err := second.Change(change); err != nil {
			t.Fatal(err)
		}
		if p := second.Records().Penalty("web"); p != (verdict.Penalty{}) {
			t.Errorf("the penalty is %+v", p)
		}
		if past := second.Records().History("damped"); len(past) > 0 {
			t.Errorf("the history has %+v of a target that was damped before", past)
		}
	})
}

// An engine that takes over targets also takes over their penalties, unless its own penalty is from a later flap.
func TestPenaltiesOfAnotherEngineAreTakenOver(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		now := time.Now()
		damped := verdict.Penalty{Value: 3000, At: now.Add(-time.Minute), Since: now.Add(-time.Minute)}
		own := verdict.Penalty{Value: 1000, At: now.Add(-30 * time.Second)}
		of := map[string]probe.Damping{"none": {}, "later": {}}
		if _, err := e.Change(engine.Change{Dampings: of, Penalties: map[string]verdict.Penalty{"later": own}}); err != nil {
			t.Fatal(err)
		}
		set := probe.Set{}
		for _, name := range []string{"none", "later", "free"} {
			p := every(time.Second, 1, says(probe.Success))
			p.Target.Static = true
			set[probe.ID{Target: name, Kind: probe.Readiness}] = p
		}
		penalties := map[string]verdict.Penalty{"none": damped, "later": damped, "free": damped}
		if _, err := e.Change(engine.Change{Set: set, Penalties: penalties}); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		for name, want := range map[string]probe.TargetState{"none": probe.StateDamped, "later": probe.StateReady, "free": probe.StateReady} {
			if st, _ := e.Target(name); st.State != want {
				t.Errorf("%s is %v, want %v, with the penalty %+v", name, st.State, want, e.Records().Penalty(name))
			}
		}
		if p := e.Records().Penalty("later"); p.Value != own.Value {
			t.Errorf("a penalty of a later flap is replaced by %+v", p)
		}
	})
}
