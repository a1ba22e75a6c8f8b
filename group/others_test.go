package group_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// others shows targets in stage.others, as a fleet does.
type others struct {
	*stage
	owner *engine.Owner
}

// readiness returns the only probe of a target.
func readiness(target string) probe.ID { return probe.ID{Target: target, Kind: probe.Readiness} }

// add shows targets of the stage, of which nothing is known yet.
func (o *others) add(targets ...string) {
	o.t.Helper()
	c := engine.Change{Set: probe.Set{}}
	for _, target := range targets {
		c.Set[readiness(target)] = o.set[readiness(target)]
	}
	if _, err := o.owner.Change(c); err != nil {
		o.t.Fatal(err)
	}
	pass(0)
}

// restate says what another engine has found out now about a target.
func (o *others) restate(target string, v probe.Verdict) {
	o.t.Helper()
	o.restateSince(target, v, time.Now())
}

func (o *others) restateSince(target string, v probe.Verdict, since time.Time) {
	o.t.Helper()
	last := probe.Success
	if v == probe.Failing {
		last = probe.Failure
	}
	in := probe.Instance{Target: target, ID: probe.StaticID, Phase: probe.Running, Since: time.Now()}
	m := engine.Memory{State: verdict.State{Instance: in.ID, Verdict: v, Last: last, Run: 1}, Since: since, Started: true}
	if err := o.stage.others.Admin().Restate(in, engine.Restated{Memories: map[probe.ID]engine.Memory{readiness(target): m}}); err != nil {
		o.t.Fatal(err)
	}
	pass(0)
}

func (o *others) remove(target string) {
	o.t.Helper()
	if _, err := o.owner.Change(engine.Change{Remove: []probe.ID{readiness(target)}}); err != nil {
		o.t.Fatal(err)
	}
	o.stage.others.Report(probe.Instance{Target: target, Phase: probe.Absent})
	pass(0)
}

// playWithOthers plays with groups whose members are in two engines.
func playWithOthers(t *testing.T, f func(o *others)) {
	play(t, func(s *stage) { f(&others{s, s.others.Owner("others")}) })
}

// A member that moves may be seen in a state that it is not in, while a View is made. The next one has it as before.
func TestAMemberThatWasAwayBetweenTwoViewsIsNotSlow(t *testing.T) {
	playWithOthers(t, func(o *others) {
		o.target("b", probe.Success, nil)
		o.add("b")
		o.restate("b", probe.Passing)
		o.rules(map[string]group.Rule{"all": {SlowStart: time.Minute}})
		pass(time.Hour)
		o.rotates("all", "b=100")
		release := o.groups.Hold()
		now, _ := o.stage.others.Target("b")
		down := now
		down.Gateway = probe.GatewayDown
		o.groups.Fold(down)
		o.groups.Fold(now)
		release()
		pass(0)
		o.rotates("all", "b=100")
	})
}

func TestMembersOfOtherEnginesAreMembers(t *testing.T) {
	playWithOthers(t, func(o *others) {
		o.target("a", probe.Success, nil)
		o.apply()
		for _, name := range []string{"b", "c"} {
			o.target(name, probe.Success, map[string]string{"tier": "web"})
		}
		o.add("b", "c")
		o.rules(map[string]group.Rule{"all": {}})
		pass(time.Second)
		o.is("all", "ready 1 0 2")
		if v := o.groups.Get("all").View(); !v.Frozen {
			t.Error("the group does not wait for what other engines have found out")
		}
		o.restate("b", probe.Passing)
		o.restate("c", probe.Failing)
		o.is("all", "ready 2 1 0")
		o.rotates("all", "a=100 b=100 c=0")
		if m := o.groups.Get("all").View().Member("b"); m.Labels["tier"] != "web" {
			t.Errorf("the labels of b are %v", m.Labels)
		}
		o.restate("c", probe.Passing)
		o.rotates("all", "a=100 b=100 c=100")
		o.remove("b")
		o.rotates("all", "a=100 c=100")
		o.rules(nil)
		o.rules(map[string]group.Rule{"again": {}})
		pass(time.Second)
		o.is("again", "ready 2 0 0")
	})
}

// An engine that starts later keeps the same members in rotation for the quorum: the last to go down.
func TestTheLastToGoDownIsTheSameInAllEngines(t *testing.T) {
	playWithOthers(t, func(o *others) {
		pass(time.Hour)
		for _, name := range []string{"a", "b", "c"} {
			o.target(name, probe.Success, nil)
		}
		o.add("a", "b", "c")
		o.rules(map[string]group.Rule{"all": {Quorum: 1}})
		now := time.Now()
		o.restateSince("a", probe.Failing, now.Add(-3*time.Minute))
		o.restateSince("b", probe.Failing, now.Add(-time.Minute))
		o.restateSince("c", probe.Failing, now.Add(-2*time.Minute))
		pass(2 * time.Minute)
		o.rotates("all", "a=0 b=100 c=0")
		if m := o.groups.Get("all").View().Member("b"); !m.Since.Equal(now.Add(-time.Minute)) {
			t.Errorf("b is down since %v, want %v", m.Since, now.Add(-time.Minute))
		}
	})
}

// A member that moves to another engine and back is in both for a moment. Of the one that loses it nothing is to be
// seen: neither that it has no probes any more, nor that its instance is being terminated; of the one that gets it
// not that nothing is known there yet.
func TestAMemberThatMovesDoesNotChange(t *testing.T) {
	playWithOthers(t, func(o *others) {
		for _, name := range []string{"a", "b"} {
			o.target(name, probe.Success, nil)
		}
		o.apply()
		o.rules(map[string]group.Rule{"all": {Quorum: 1, SlowStart: time.Minute}})
		pass(time.Hour)
		before := o.groups.Get("all").View()
		check := func(when string) {
			t.Helper()
			pass(time.Second)
			if now := o.groups.Get("all").View(); now.Version != before.Version {
				o.is("all", "ready 2 0 0")
				o.rotates("all", "a=100 b=100")
				t.Errorf("the group has changed %s", when)
			}
		}
		own := o.stage.engine
		report := func(in probe.Instance) {
			in.Target, in.ID = "b", "b#1"
			own.Report(in)
		}
		for range 3 {
			o.add("b")
			check("when others were about to get b")
			o.restate("b", probe.Passing)
			check("when others knew b")
			moving := o.set[readiness("b")]
			delete(o.set, readiness("b"))
			if _, err := own.Apply(o.set); err != nil {
				t.Fatal(err)
			}
			check("when the engine had no probes of b any more")
			report(probe.Instance{Phase: probe.Running, Terminating: true})
			check("when the engine still had an instance of b")
			own.Report(probe.Instance{Target: "b", Phase: probe.Absent})
			check("when the engine had no b any more")

			o.set[readiness("b")] = moving
			if _, err := own.Apply(o.set); err != nil {
				t.Fatal(err)
			}
			check("when the engine did not know b yet")
			report(probe.Instance{Phase: probe.Running, Since: time.Now()})
			check("when the engine knew b")
			o.remove("b")
			check("when others had no b any more")
		}
		if lines := o.log.String(); strings.Contains(lines, "group") {
			t.Errorf("the log has\n%s", lines)
		}
	})
}
