package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/followtest"
)

// chain is an engine with targets whose readiness is set by the test. One attempt, made each second, decides the verdict.
type chain struct {
	t       *testing.T
	engine  *engine.Engine
	set     probe.Set
	answers map[string]*script
}

func chained(t *testing.T, names string, f func(c *chain)) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		c := &chain{t, e, probe.Set{}, map[string]*script{}}
		for _, name := range strings.Fields(names) {
			c.answers[name] = says(probe.Success)
			p := every(time.Second, 1, c.answers[name])
			p.Target.Static = true
			c.set[probe.ID{Target: name, Kind: probe.Readiness}] = p
		}
		apply(t, e, c.set)
		pass(2 * time.Second)
		f(c)
	})
}

func (c *chain) say(o probe.Outcome, names ...string) {
	for _, name := range names {
		c.answers[name].say(o)
	}
	pass(2 * time.Second)
}

func (c *chain) depend(of map[string][]string) {
	c.t.Helper()
	if _, err := c.engine.Change(engine.Change{Dependencies: of}); err != nil {
		c.t.Fatal(err)
	}
}

// is checks the states of all targets, in the form "a=ready b=unreachable(a)".
func (c *chain) is(want string) {
	c.t.Helper()
	var got []string
	counts := engine.TargetStates{}
	for st := range c.engine.Select(context.Background(), engine.Filter{}) {
		text := st.Target + "=" + st.State.String()
		if st.TroubledDependency != "" {
			text += "(" + st.TroubledDependency + ")"
		}
		got = append(got, text)
		counts[st.State]++
		checkGauge(c.t, c.engine, st.Target, nil)
	}
	if text := strings.Join(got, " "); text != want || counts != c.engine.States() {
		c.t.Errorf("the states are %s, want %s; counted %v, and the engine says %v", text, want, counts, c.engine.States())
	}
}

// web depends on db, which another engine probes, and other depends on nothing. The other engine mirrors that engine, and also
// shows that app fails.
func TestFailuresAreExplainedByTargetsOfOtherEngines(t *testing.T) {
	chained(t, "other web", func(c *chain) {
		const delay = 9 * time.Second
		db, app := probe.ID{Target: "db", Kind: probe.Readiness}, probe.ID{Target: "app", Kind: probe.Readiness}
		rule := probe.Rule{Period: time.Second, FailureThreshold: 1}
		others := followtest.New(t, rule, db, app)
		restate := func(id probe.ID, v probe.Verdict) {
			t.Helper()
			others.Say(id, v)
			pass(time.Second)
		}
		depends := map[string][]string{"web": {"db"}, "app": {"web"}}
		c.depend(depends)
		if _, err := others.Change(engine.Change{Dependencies: depends}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var following sync.WaitGroup
		following.Go(func() { others.Admin().FollowDependencies(ctx, c.engine, 0) })
		defer following.Wait()
		defer cancel()
		stop := others.Follow(c.engine, delay)
		defer func() { stop() }()

		pass(time.Second)
		c.say(probe.Failure, "web", "other")
		restate(app, probe.Failing)
		c.is("other=not_ready web=not_ready")
		restate(db, probe.Failing)
		c.is("other=not_ready web=unreachable(db)")
		if st, _ := others.Target("app"); st.State != probe.StateUnreachable || st.TroubledDependency != "web" {
			t.Errorf("app is %v because of %q", st.State, st.TroubledDependency)
		}
		if on := c.engine.Admin().TroubledDependency("web"); on != "db" {
			t.Errorf("failures of web are explained by %q", on)
		}
		if d, ok := c.engine.Admin().Dependency("db"); !d.IsOther || d.Delay != delay || !ok || d.State != probe.StateNotReady {
			t.Errorf("db is %v, of another engine %v, known after %v, there %v", d.State, d.IsOther, d.Delay, ok)
		}
		if d, ok := c.engine.Admin().Dependency("web"); d.IsOther || d.Delay != 0 || !ok || d.State != probe.StateUnreachable {
			t.Errorf("web is %v, of another engine %v, known after %v, there %v", d.State, d.IsOther, d.Delay, ok)
		}
		stop()
		c.is("other=not_ready web=unreachable(db)")
		c.engine.Admin().UnfollowDependencies()
		c.is("other=not_ready web=not_ready")
		if d, ok := c.engine.Admin().Dependency("db"); ok {
			t.Errorf("db is known as %v", d.State)
		}
		stop = others.Follow(c.engine, delay)
		pass(time.Second)
		c.is("other=not_ready web=unreachable(db)")
		restate(db, probe.Passing)
		c.is("other=not_ready web=not_ready")
		restate(db, probe.Failing)
		if _, err := others.Apply(probe.Set{app: {Rule: rule, Handler: says(probe.Unknown)}}); err != nil {
			t.Fatal(err)
		}
		others.Report(probe.Instance{Target: "db", Phase: probe.Absent})
		pass(time.Second)
		c.is("other=not_ready web=not_ready")
		c.say(probe.Success, "web")
		if st, _ := others.Target("app"); st.State != probe.StateNotReady {
			t.Errorf("app is %v when web is ready", st.State)
		}
	})
}

func TestFailuresOfATargetWhoseDependencyIsInTroubleAreUnreachable(t *testing.T) {
	chained(t, "cache db other web", func(c *chain) {
		c.depend(map[string][]string{"web": {"db", "cache", "db", "not there"}})
		c.is("cache=ready db=ready other=ready web=ready")
		c.say(probe.Failure, "web", "other")
		c.is("cache=ready db=ready other=not_ready web=not_ready")
		changes := c.engine.SubscribeTargets()
		defer changes.Close()
		known := polled{}
		known.poll(changes)
		c.say(probe.Failure, "db")
		c.is("cache=ready db=not_ready other=not_ready web=unreachable(db)")
		st, _ := c.engine.Target("web")
		if since := time.Since(st.Since); since > 2*time.Second {
			t.Errorf("web is unreachable for %v", since)
		}
		if known.poll(changes); known["web"].TroubledDependency != "db" || st.Ready || st.Gateway != probe.GatewayDown || st.Cause.Probe.Target != "web" {
			t.Errorf("subscribers know %+v; the status is %+v", known["web"], st)
		}
		c.say(probe.Failure, "cache")
		c.is("cache=not_ready db=not_ready other=not_ready web=unreachable(cache)")
		if known.poll(changes); known["web"].TroubledDependency != "cache" {
			t.Errorf("subscribers know %+v", known["web"])
		}
		c.say(probe.Success, "cache", "other")
		c.is("cache=ready db=not_ready other=ready web=unreachable(db)")
		c.say(probe.Success, "web") // a recovery is never delayed
		c.is("cache=ready db=not_ready other=ready web=ready")
		if on := c.engine.Admin().TroubledDependency("web"); on != "db" { // it explains the next failure
			t.Errorf("failures of web would be explained by %q, want db", on)
		}
		c.say(probe.Failure, "web")
		c.say(probe.Success, "db")
		c.is("cache=ready db=ready other=ready web=not_ready")
		if on := c.engine.Admin().TroubledDependency("web"); on != "" {
			t.Errorf("failures of web are explained by %q", on)
		}
	})
}

func TestDependenciesAreTransitiveAndChange(t *testing.T) {
	chained(t, "a b c d", func(c *chain) {
		c.depend(map[string][]string{"b": {"a"}, "c": {"b"}, "d": {"c"}})
		c.say(probe.Failure, "a", "b", "c", "d")
		c.is("a=not_ready b=unreachable(a) c=unreachable(b) d=unreachable(c)")
		c.say(probe.Success, "b") // c fails for another reason
		c.is("a=not_ready b=ready c=not_ready d=unreachable(c)")
		c.say(probe.Failure, "b")
		c.depend(map[string][]string{"b": {"a"}, "d": {"a"}})
		c.is("a=not_ready b=unreachable(a) c=not_ready d=unreachable(a)")
		delete(c.set, probe.ID{Target: "a", Kind: probe.Readiness})
		apply(t, c.engine, c.set)
		c.is("b=not_ready c=not_ready d=not_ready")
		p := every(time.Second, 1, says(probe.Failure))
		p.Target.Static = true
		c.set[probe.ID{Target: "a", Kind: probe.Readiness}] = p
		apply(t, c.engine, c.set)
		pass(2 * time.Second)
		c.is("a=not_ready b=unreachable(a) c=not_ready d=unreachable(a)")
		c.depend(map[string][]string{})
		c.is("a=not_ready b=not_ready c=not_ready d=not_ready")
	})
}

func TestDependenciesThatCannotBeAreRefused(t *testing.T) {
	many := make([]string, probe.MaxDependencies+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	chained(t, "a b", func(c *chain) {
		c.depend(map[string][]string{"a": {"b"}})
		c.say(probe.Failure, "a", "b")
		for want, of := range map[string]map[string][]string{
			`target "a" depends on itself: a on a`:                   {"a": {"a"}},
			`target "a" depends on itself: a on b on c on a`:         {"a": {"b"}, "b": {"c"}, "c": {"a"}},
			`target "b" depends on itself: b on c on b`:              {"a": {"b"}, "b": {"c"}, "c": {"b"}},
			`target "a" depends on 101 targets; at most 100 are all`: {"a": many},
		} {
			if _, err := c.engine.Change(engine.Change{Dependencies: of}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want %s", err, want)
			}
		}
		c.is("a=unreachable(b) b=not_ready")
	})
}

// After each of many random changes, a target is unreachable if and only if it fails and a target that it depends on is in
// trouble or unreachable.
func TestUnreachableTargetsAreThoseThatFailBelowOneInTrouble(t *testing.T) {
	const names = "a b c d e f g"
	for seed := range uint64(10) {
		chained(t, names, func(c *chain) {
			r := rand.New(rand.NewPCG(seed, 5))
			all, of := strings.Fields(names), map[string][]string{}
			for range 60 {
				name := all[r.IntN(len(all))]
				switch r.IntN(3) {
				case 0: // only earlier names, so there are no cycles
					of = map[string][]string{}
					for i, name := range all {
						for _, on := range all[:i] {
							if r.IntN(3) == 0 {
								of[name] = append(of[name], on)
							}
						}
					}
					c.depend(of)
				default:
					c.answers[name].say([]probe.Outcome{probe.Success, probe.Failure}[r.IntN(2)])
				}
				pass(time.Second)
				var want []string
				states := map[string]probe.TargetState{}
				for _, name := range all {
					st, _ := c.engine.Status(probe.ID{Target: name, Kind: probe.Readiness})
					text := name + "="
					states[name] = probe.StateReady
					if st.Verdict == probe.Failing {
						states[name] = probe.StateNotReady
					}
					for _, on := range of[name] {
						if states[name] == probe.StateNotReady && verdict.ExplainsDependents(states[on]) {
							states[name], text = probe.StateUnreachable, text+"unreachable("+on+")"
							break
						}
					}
					if states[name] != probe.StateUnreachable {
						text += states[name].String()
					}
					want = append(want, text)
				}
				c.is(strings.Join(want, " "))
			}
		})
	}
}

// A subscriber never sees a new target without its dependencies, and a change with invalid dependencies changes nothing.
func TestDependenciesChangeTogetherWithProbes(t *testing.T) {
	chained(t, "other", func(c *chain) {
		failed := func(target string) (probe.ID, engine.Memory) {
			return probe.ID{Target: target, Kind: probe.Readiness}, engine.Memory{
				State: verdict.State{Verdict: probe.Failing, Last: probe.Failure, Run: 1, Instance: probe.StaticID}, Since: time.Now(),
			}
		}
		change := engine.Change{Set: probe.Set{}, Memories: map[probe.ID]engine.Memory{}}
		for _, target := range []string{"db", "web"} {
			id, m := failed(target)
			c.answers[target] = says(probe.Failure)
			p := every(time.Second, 1, c.answers[target])
			p.Target.Static = true
			change.Set[id], change.Memories[id] = p, m
		}
		changes := c.engine.SubscribeTargets()
		defer changes.Close()
		change.Dependencies = map[string][]string{"web": {"db"}, "db": {"web"}}
		if _, err := c.engine.Change(change); err == nil || !strings.Contains(err.Error(), `target "db" depends on itself: db on web on db`) {
			t.Errorf("the error is %v", err)
		}
		c.is("other=ready")
		if _, err := preview(c.engine, change); err == nil {
			t.Error("a preview has no error")
		}
		change.Dependencies = map[string][]string{"web": {"db"}}
		if _, err := c.engine.Change(change); err != nil {
			t.Fatal(err)
		}
		for st, ok := changes.Poll(); ok; st, ok = changes.Poll() {
			if st.Target == "web" && st.State != probe.StateUnreachable {
				t.Errorf("web is seen %v", st.State)
			}
		}
		c.is("db=not_ready other=ready web=unreachable(db)")
		if _, err := c.engine.Change(engine.Change{}); err != nil {
			t.Fatal(err)
		}
		c.is("db=not_ready other=ready web=unreachable(db)")
		if _, err := c.engine.Change(engine.Change{Dependencies: map[string][]string{}}); err != nil {
			t.Fatal(err)
		}
		c.is("db=not_ready other=ready web=not_ready")
	})
}

// With All, a change is an Apply: probes that are not in the set are removed.
func TestAChangeOfAllProbesRemovesTheOthers(t *testing.T) {
	chained(t, "a b", func(c *chain) {
		delete(c.set, probe.ID{Target: "b", Kind: probe.Readiness})
		c.set[probe.ID{Target: "a", Kind: probe.Liveness}] = c.set[probe.ID{Target: "a", Kind: probe.Readiness}]
		preview, err := preview(c.engine, engine.Change{Set: c.set, All: true})
		if err != nil {
			t.Fatal(err)
		}
		changes, err := c.engine.Change(engine.Change{Set: c.set, All: true})
		if want := (engine.Changes{Added: 1, Removed: 1, Kept: 1}); err != nil || changes != want || preview.Changes != want {
			t.Errorf("the changes are %+v, by the preview %+v, %v", changes, preview.Changes, err)
		}
		if _, exists := c.engine.Target("b"); exists {
			t.Error("b is still there")
		}
		id := probe.ID{Target: "a", Kind: probe.Liveness}
		if _, err := c.engine.Change(engine.Change{Set: c.set, All: true, Remove: []probe.ID{{Target: "c", Kind: id.Kind}}}); err == nil {
			t.Error("probes are removed twice")
		}
	})
}
