package group_test

import (
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// doubting is an engine that can be made to doubt its verdicts.
type doubting struct {
	*engine.Union
	isolated, doubts atomic.Bool
}

func (d *doubting) Health() engine.Health {
	h := d.Union.Health()
	h.Isolated = d.isolated.Load()
	return h
}

func (d *doubting) Doubts(probe.ID) bool { return d.doubts.Load() }

// rotates checks the weights of a group: "a=100 b=0", and " frozen" or " panics".
func (s *stage) rotates(name, want string) {
	s.t.Helper()
	v := s.groups.Get(name).View()
	var got []string
	in := 0
	for m := range v.Members() {
		got = append(got, fmt.Sprintf("%s=%d", m.Target, m.Weight))
		if m.InRotation {
			in++
		}
	}
	if v.Frozen {
		got = append(got, "frozen")
	}
	if v.Panicking {
		got = append(got, "panics")
	}
	if text := strings.Join(got, " "); text != want || in != v.InRotation {
		s.t.Errorf("group %s: %s, want %s; %d are in rotation, and the view says %d", name, text, want, in, v.InRotation)
	}
}

// After a start nothing is known. A gateway keeps what it has until all members are decided, or
// for a minute; a member that is not decided even then is in rotation.
func TestAGroupIsFrozenUntilItsMembersAreDecided(t *testing.T) {
	play(t, func(s *stage) {
		s.target("a", probe.Unknown, nil)
		s.target("b", probe.Unknown, nil)
		s.target("c", probe.Unknown, nil)
		s.rules(map[string]group.Rule{"g": {}})
		s.rotates("g", "frozen")
		s.apply()
		s.rules(map[string]group.Rule{"g": {}})
		s.rotates("g", "a=100 b=100 c=100 frozen")
		s.answers["a"].say(probe.Failure)
		pass(2 * time.Second)
		s.rotates("g", "a=100 b=100 c=100 frozen")
		pass(time.Minute)
		s.rotates("g", "a=0 b=100 c=100")
		s.answers["b"].say(probe.Failure)
		s.answers["c"].say(probe.Success)
		pass(2 * time.Second)
		s.rotates("g", "a=0 b=0 c=100")
		s.answers["c"].say(probe.Unknown)
		pass(time.Minute)
		s.rotates("g", "a=0 b=0 c=100")
	})
}

func TestAGroupThawsWhenAllMembersAreDecided(t *testing.T) {
	play(t, func(s *stage) {
		s.target("a", probe.Unknown, nil)
		s.target("b", probe.Failure, nil)
		s.apply()
		s.rules(map[string]group.Rule{"g": {}})
		pass(2 * time.Second)
		s.rotates("g", "a=100 b=100 frozen")
		s.answers["a"].say(probe.Warning)
		pass(2 * time.Second)
		s.rotates("g", "a=100 b=0")
	})
}

// A group whose members were all decided once does not wait for new ones: they are out of
// rotation until they have passed, and begin slowly.
func TestANewMemberIsOutOfRotationUntilItPasses(t *testing.T) {
	play(t, func(s *stage) {
		s.target("a", probe.Success, nil)
		s.apply()
		s.rules(map[string]group.Rule{"g": {SlowStart: 20 * time.Second}})
		pass(2 * time.Second)
		s.rotates("g", "a=100") // no slow start after a start of the engine
		s.target("b", probe.Unknown, nil)
		s.apply()
		pass(2 * time.Minute)
		s.rotates("g", "a=100 b=0")
		s.answers["b"].say(probe.Success)
		versions, seen := map[uint64]bool{}, map[int]bool{}
		for range 300 {
			pass(100 * time.Millisecond)
			v := s.groups.Get("g").View()
			versions[v.Version], seen[v.Member("b").Weight] = true, true
		}
		s.rotates("g", "a=100 b=100")
		want := map[int]bool{0: true, 10: true, 20: true, 30: true, 40: true, 50: true, 60: true, 70: true, 80: true, 90: true, 100: true}
		if !maps.Equal(seen, want) || len(versions) > len(want)+1 {
			t.Errorf("the weights were %v, in %d views", seen, len(versions))
		}
		before := s.groups.Get("g").View().Version
		pass(time.Hour)
		if after := s.groups.Get("g").View().Version; after != before {
			t.Errorf("nothing has changed, and there are %d further views", after-before)
		}
	})
}

// While the engine has lost its view of the world, a gateway keeps what it has.
func TestAnIsolatedEngineFreezesItsGroups(t *testing.T) {
	play(t, func(s *stage) {
		s.target("a", probe.Success, nil)
		s.target("b", probe.Success, nil)
		s.apply()
		s.rules(map[string]group.Rule{"g": {Panic: 0.6}})
		pass(2 * time.Second)
		s.rotates("g", "a=100 b=100")
		s.doubts.isolated.Store(true)
		s.answers["a"].say(probe.Failure)
		pass(5 * time.Second)
		s.rotates("g", "a=100 b=100 frozen")
		s.is("g", "ready 1 1 0")
		s.doubts.isolated.Store(false)
		pass(2 * time.Second)
		s.rotates("g", "a=100 b=100 panics")
		if log := s.log.Take(); !strings.Contains(log, "group is in panic") {
			t.Errorf("the log is %s", log)
		}
		s.answers["a"].say(probe.Success)
		pass(5 * time.Second)
		s.rotates("g", "a=100 b=100")
		if log := s.log.Take(); !strings.Contains(log, "group is no longer in panic") {
			t.Errorf("the log is %s", log)
		}
	})
}

// A failure that may be the engine's own takes no member out; one that is beyond doubt does,
// and so does a doubt that ends.
func TestADoubtfulFailureTakesNoMemberOut(t *testing.T) {
	play(t, func(s *stage) {
		s.target("a", probe.Success, nil)
		s.target("b", probe.Success, nil)
		s.apply()
		s.rules(map[string]group.Rule{"g": {}})
		pass(2 * time.Second)
		s.doubts.doubts.Store(true)
		s.answers["a"].say(probe.Failure)
		pass(time.Minute)
		s.rotates("g", "a=100 b=100")
		s.doubts.doubts.Store(false)
		pass(2 * time.Second)
		s.rotates("g", "a=0 b=100")
	})
}

func TestADoubtfulFailureDecidesNothingAtTheStart(t *testing.T) {
	play(t, func(s *stage) {
		s.doubts.doubts.Store(true)
		s.target("a", probe.Failure, nil)
		s.target("b", probe.Success, nil)
		s.apply()
		s.rules(map[string]group.Rule{"g": {}})
		pass(10 * time.Second)
		s.rotates("g", "a=100 b=100 frozen")
		s.doubts.doubts.Store(false)
		pass(2 * time.Second)
		s.rotates("g", "a=0 b=100")
	})
}

// A target that is removed loses its probes while its instance terminates. Its address, port
// and labels stay until it is gone, so that requests under way can end.
func TestAMemberThatIsRemovedDrains(t *testing.T) {
	play(t, func(s *stage) {
		s.target("a", probe.Success, map[string]string{"team": "shop"})
		id := probe.ID{Target: "a", Kind: probe.Readiness}
		p := s.set[id]
		p.Target.Address, p.Target.Ports = "10.0.0.7", map[string]uint16{"http": 8080}
		s.set[id] = p
		s.apply()
		r := rule(t, "1", nil, []string{"team=shop"})
		r.Port = "http"
		s.rules(map[string]group.Rule{"g": r})
		pass(2 * time.Second)
		s.rotates("g", "a=100")
		delete(s.set, id)
		in := probe.Instance{Target: "a", ID: "static", Phase: probe.Running, Since: time.Now(), Managed: true, Terminating: true}
		s.engine.Report(in)
		s.apply()
		pass(time.Second)
		s.rotates("g", "a=0")
		if m := s.groups.Get("g").View().Member("a"); m.State != probe.GatewayDraining || m.Address != "10.0.0.7" || m.Port != 8080 || m.Labels["team"] != "shop" {
			t.Errorf("the member is %+v", *m)
		}
		in.Phase = probe.Gone
		s.engine.Report(in)
		pass(2 * time.Second)
		if v := s.groups.Get("g").View(); v.Counts.Total() != 0 || !v.Frozen {
			t.Errorf("the view is %+v", v)
		}
	})
}

// A target without probes, such as a process, is a member by the labels that it is given.
func TestATargetWithoutProbesMovesWithItsLabels(t *testing.T) {
	play(t, func(s *stage) {
		s.rules(map[string]group.Rule{"shop": rule(t, "1", nil, []string{"team=shop"}), "pay": rule(t, "1", nil, []string{"team=pay"})})
		for _, c := range []struct{ team, shop, pay string }{
			{"shop", "worker=100", ""}, {"pay", "", "worker=100"}, {"", "", ""}, {"shop", "worker=100", ""},
		} {
			labels := map[string]string{"team": c.team}
			if c.team == "" {
				labels = nil
			}
			if err := s.engine.Admin().Label("worker", labels); err != nil {
				t.Fatal(err)
			}
			s.engine.Report(probe.Instance{Target: "worker", ID: "1", Phase: probe.Running, Since: time.Now(), Managed: true})
			pass(2 * time.Second)
			for name, want := range map[string]string{"shop": c.shop, "pay": c.pay} {
				if want == "" {
					want = "frozen" // no member is known to be ready
				}
				s.rotates(name, want)
			}
		}
	})
}

// Another rule leaves those in rotation that were, and another address makes another member.
func TestRotationsGoOnWithAnotherRule(t *testing.T) {
	play(t, func(s *stage) {
		s.target("a", probe.Success, nil)
		s.target("b", probe.Success, nil)
		s.apply()
		s.rules(map[string]group.Rule{"g": {}})
		pass(2 * time.Second)
		s.answers["a"].say(probe.Unknown)
		s.rules(map[string]group.Rule{"g": {Weight: 7, SlowStart: time.Minute}})
		pass(2 * time.Second)
		s.rotates("g", "a=7 b=7")
		id := probe.ID{Target: "a", Kind: probe.Readiness}
		p := s.set[id]
		p.Target.Address = "10.0.0.8"
		s.set[id] = p
		s.apply()
		pass(2 * time.Second)
		s.rotates("g", "a=0 b=7")
		s.answers["a"].say(probe.Success)
		pass(2 * time.Second)
		s.rotates("g", "a=1 b=7")
	})
}

// A damped member gets no requests, like one that gateways have ejected: if all of them flap, half of those that
// are ready stay in rotation, and one that is alone stays. Panic brings damped members requests too.
func TestDampedMembersAreOutOfRotationButNotAllOfThem(t *testing.T) {
	tier.Slow(t)
	play(t, func(s *stage) {
		all := []string{"a", "b", "c", "d"}
		of := map[string]probe.Damping{}
		for _, name := range all {
			s.target(name, probe.Success, nil)
			of[name] = probe.Damping{}
		}
		s.apply()
		if _, err := s.engine.Change(engine.Change{Dampings: of}); err != nil {
			t.Fatal(err)
		}
		s.rules(map[string]group.Rule{"g": {}, "alone": rule(t, "1", []string{"c"}, nil), "panic": {Panic: 0.6}})
		pass(2 * time.Second)
		flap := func(name string) {
			for range 3 {
				s.answers[name].say(probe.Failure)
				pass(2 * time.Second)
				s.answers[name].say(probe.Success)
				pass(2 * time.Second)
			}
		}
		flap("c")
		s.is("g", "ready 3 1 0")
		s.rotates("g", "a=100 b=100 c=0 d=100")
		s.rotates("alone", "c=100")
		flap("b")
		s.rotates("g", "a=100 b=0 c=0 d=100")
		s.rotates("panic", "a=100 b=100 c=100 d=100 panics")
		flap("a")
		flap("d")
		s.rotates("g", "a=100 b=0 c=0 d=100")
		s.rotates("alone", "c=100")
		if stats := s.engine.Stats(); stats.Damped != 4 || stats.Dampings != 4 {
			t.Errorf("%d targets are damped, after %d dampings", stats.Damped, stats.Dampings)
		}
		pass(time.Hour)
		s.is("g", "ready 4 0 0")
		s.rotates("g", "a=100 b=100 c=100 d=100")
	})
}

// Gateways that report failures of all members take half of them out: the probes decide about the
// others.
func TestGatewaysCannotEjectAllMembers(t *testing.T) {
	play(t, func(s *stage) {
		for _, name := range []string{"a", "b", "c", "d"} {
			s.target(name, probe.Success, nil)
		}
		s.apply()
		s.rules(map[string]group.Rule{"g": {}})
		pass(2 * time.Second)
		for _, answer := range s.answers {
			answer.say(probe.Unknown) // so that no attempt ends an ejection
		}
		for _, name := range []string{"c", "b", "a", "d"} {
			for range 5 {
				s.engine.Observe(probe.ID{Target: name, Kind: probe.Readiness}, probe.Observation{Outcome: probe.Failure})
			}
			pass(time.Millisecond)
		}
		s.rotates("g", "a=100 b=0 c=0 d=100")
		if stats := s.engine.Stats(); stats.Ejected != 4 || stats.Ejections != 4 {
			t.Errorf("%d targets are ejected, after %d ejections", stats.Ejected, stats.Ejections)
		}
		s.is("g", "down 0 4 0")
		pass(time.Minute)
		s.rotates("g", "a=100 b=100 c=100 d=100")
		if stats := s.engine.Stats(); stats.Ejected != 0 || stats.Ejections != 4 {
			t.Errorf("%d targets are ejected, after %d ejections", stats.Ejected, stats.Ejections)
		}
	})
}
