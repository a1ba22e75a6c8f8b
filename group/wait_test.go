package group_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// threeReady makes the targets a, b and c, which are ready, and a group of all targets.
func threeReady(s *stage, rule group.Rule) {
	s.t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		s.target(name, probe.Success, nil)
	}
	s.apply()
	s.rules(map[string]group.Rule{"g": rule})
	pass(2 * time.Second)
	s.rotates("g", "a=100 b=100 c=100")
}

// move gives a target another address, at which its probe has an outcome.
func (s *stage) move(name string, o probe.Outcome) {
	s.moves++
	id := probe.ID{Target: name, Kind: probe.Readiness}
	p := s.set[id]
	p.Target.Address = fmt.Sprintf("10.0.1.%d", s.moves)
	s.set[id] = p
	s.answers[name].say(o)
}

// The first member that is decided after a group has lost all of them does not get all requests.
func TestAGroupThatWasLostWaitsForItsMembers(t *testing.T) {
	play(t, func(s *stage) {
		threeReady(s, group.Rule{})
		lost := s.set
		s.set = probe.Set{}
		s.apply()
		pass(2 * time.Second)
		s.rotates("g", "frozen")
		pass(time.Hour)
		s.set = lost
		s.answers["b"].say(probe.Unknown)
		s.answers["c"].say(probe.Unknown)
		s.apply()
		pass(2 * time.Second)
		s.rotates("g", "a=100 b=100 c=100 frozen")
		s.answers["c"].say(probe.Success)
		pass(2 * time.Second)
		s.rotates("g", "a=100 b=100 c=100 frozen")
		s.answers["b"].say(probe.Failure)
		pass(2 * time.Second)
		s.rotates("g", "a=100 b=0 c=100")
	})
}

func TestAGroupWhoseMembersAreAllRenamedWaitsForThem(t *testing.T) {
	play(t, func(s *stage) {
		threeReady(s, group.Rule{SlowStart: time.Minute})
		s.set = probe.Set{}
		s.target("d", probe.Success, nil)
		s.target("e", probe.Unknown, nil)
		s.target("f", probe.Unknown, nil)
		release := s.groups.Hold() // the groups hear of the change and of the first verdict at once
		s.apply()
		pass(2 * time.Second)
		release()
		s.rotates("g", "d=100 e=100 f=100 frozen")
		pass(50 * time.Second)
		s.rotates("g", "d=100 e=100 f=100 frozen")
		s.answers["e"].say(probe.Success)
		s.answers["f"].say(probe.Failure)
		pass(2 * time.Second)
		s.rotates("g", "d=100 e=100 f=0") // none starts slowly: none is newer than the others
	})
}

func TestAGroupWhoseMembersAllMoveWaitsForThem(t *testing.T) {
	play(t, func(s *stage) {
		threeReady(s, group.Rule{})
		s.move("a", probe.Success)
		s.move("b", probe.Unknown)
		s.move("c", probe.Unknown)
		release := s.groups.Hold()
		s.apply()
		pass(2 * time.Second)
		release()
		s.rotates("g", "a=100 b=100 c=100 frozen")
		s.answers["b"].say(probe.Success)
		pass(2 * time.Second)
		s.rotates("g", "a=100 b=100 c=100 frozen")
		pass(time.Minute) // c is presumed to be ready: it has started
		s.rotates("g", "a=100 b=100 c=100")
		s.answers["c"].say(probe.Failure)
		pass(2 * time.Second)
		s.rotates("g", "a=100 b=100 c=0")
	})
}

// A member that was down stays so while the others move, and does not make the first of them
// get all requests.
func TestAMemberThatIsDownDoesNotReplaceThoseThatMove(t *testing.T) {
	play(t, func(s *stage) {
		threeReady(s, group.Rule{})
		s.answers["a"].say(probe.Failure)
		pass(2 * time.Second)
		s.rotates("g", "a=0 b=100 c=100")
		s.move("b", probe.Success)
		s.move("c", probe.Unknown)
		s.apply()
		pass(2 * time.Second)
		s.rotates("g", "a=100 b=100 c=100 frozen")
		s.answers["c"].say(probe.Success)
		pass(2 * time.Second)
		s.rotates("g", "a=0 b=100 c=100")
	})
}

// As many members as before can take what they took: the group does not wait for others.
func TestAGroupWaitsForAsManyMembersAsItHad(t *testing.T) {
	play(t, func(s *stage) {
		threeReady(s, group.Rule{})
		s.set = probe.Set{}
		for i, outcome := range []probe.Outcome{probe.Success, probe.Success, probe.Unknown, probe.Unknown} {
			s.target(fmt.Sprintf("n%d", i), outcome, nil)
		}
		s.apply()
		pass(2 * time.Second)
		s.rotates("g", "n0=100 n1=100 n2=100 n3=100 frozen")
		s.answers["n2"].say(probe.Success)
		pass(2 * time.Second)
		s.rotates("g", "n0=100 n1=100 n2=100 n3=0")
	})
}

// While one member stays, the group goes on with it, and gateways act on each view.
func TestAGroupOfWhichAMemberStaysIsNeverFrozen(t *testing.T) {
	play(t, func(s *stage) {
		threeReady(s, group.Rule{})
		for range 3 {
			s.move("b", probe.Unknown)
			s.move("c", probe.Unknown)
			s.apply()
			pass(2 * time.Second)
			s.rotates("g", "a=100 b=0 c=0")
			s.answers["b"].say(probe.Success)
			pass(2 * time.Second)
			s.rotates("g", "a=100 b=100 c=0")
			s.answers["c"].say(probe.Success)
			pass(2 * time.Second)
			s.rotates("g", "a=100 b=100 c=100")
		}
	})
}

// Members that fail are not lost: a new one that is not known yet does not keep them in rotation.
func TestMembersThatAreDownAreNotLost(t *testing.T) {
	play(t, func(s *stage) {
		threeReady(s, group.Rule{})
		s.target("d", probe.Unknown, nil)
		s.apply()
		for _, name := range []string{"a", "b", "c"} {
			s.answers[name].say(probe.Failure)
		}
		pass(2 * time.Second)
		s.rotates("g", "a=0 b=0 c=0 d=0")
		s.target("e", probe.Success, nil)
		s.apply()
		pass(2 * time.Second)
		s.rotates("g", "a=0 b=0 c=0 d=0 e=100")
	})
}

func TestAGroupWhoseLastMemberComesBack(t *testing.T) {
	for _, named := range []bool{false, true} {
		play(t, func(s *stage) {
			r := group.Rule{}
			if named {
				r = rule(t, "1", []string{"a", "b"}, nil)
			}
			absent := " "
			if named {
				absent = " b=0 "
			}
			s.target("a", probe.Success, nil)
			s.apply()
			s.rules(map[string]group.Rule{"g": r})
			pass(2 * time.Second)
			s.rotates("g", "a=100"+absent[:len(absent)-1])
			id := probe.ID{Target: "a", Kind: probe.Readiness}
			kept := s.set[id]
			delete(s.set, id)
			s.apply()
			pass(time.Hour)
			if v := s.groups.Get("g").View(); !v.Frozen {
				t.Errorf("named %v: without members the view is %+v", named, v)
			}
			s.set[id] = kept
			s.answers["a"].say(probe.Unknown)
			s.apply()
			pass(2 * time.Second)
			if v := s.groups.Get("g").View(); !v.Frozen {
				t.Errorf("named %v: with a member that is undecided the view is %+v", named, v)
			}
			s.answers["a"].say(probe.Failure)
			pass(2 * time.Second)
			s.rotates("g", "a=0"+absent[:len(absent)-1])
			s.answers["a"].say(probe.Success)
			pass(2 * time.Second)
			s.rotates("g", "a=100"+absent[:len(absent)-1])
		})
	}
}

// Another rule that selects other members, or another port of theirs, loses those that were there.
func TestAnotherRuleCanLoseAllMembers(t *testing.T) {
	play(t, func(s *stage) {
		for _, name := range []string{"a1", "a2", "b1", "b2"} {
			s.target(name, probe.Success, map[string]string{"team": name[:1]})
		}
		s.answers["b2"].say(probe.Unknown)
		s.apply()
		s.rules(map[string]group.Rule{"g": rule(t, "1", nil, []string{"team=a"})})
		pass(2 * time.Second)
		s.rotates("g", "a1=100 a2=100")
		s.rules(map[string]group.Rule{"g": rule(t, "1", nil, []string{"team=b"})})
		s.rotates("g", "b1=100 b2=100 frozen")
		s.answers["b2"].say(probe.Failure)
		pass(2 * time.Second)
		s.rotates("g", "b1=100 b2=0")
	})
}

// A target that has not started yet is not presumed to be ready, however long that takes: it
// has no instance, or its startup probe has not passed.
func TestAMemberThatHasNotStartedIsNotPresumedToBeReady(t *testing.T) {
	play(t, func(s *stage) {
		s.target("a", probe.Success, nil)
		s.target("b", probe.Unknown, nil)
		s.target("c", probe.Unknown, nil)
		startup := &answer{outcome: probe.Unknown}
		s.set[probe.ID{Target: "c", Kind: probe.Startup}] = probe.Probe{Rule: probe.Rule{Period: time.Second}, Handler: startup}
		s.apply()
		s.target("d", probe.Success, nil) // has no instance
		if _, err := s.engine.Apply(s.set); err != nil {
			t.Fatal(err)
		}
		s.rules(map[string]group.Rule{"g": {}})
		pass(2 * time.Second)
		s.rotates("g", "a=100 b=100 c=100 d=100 frozen")
		pass(time.Minute)
		s.rotates("g", "a=100 b=100 c=0 d=0")
		startup.say(probe.Success)
		pass(2 * time.Second)
		s.rotates("g", "a=100 b=100 c=0 d=0")
		s.answers["c"].say(probe.Success)
		pass(2 * time.Second)
		s.rotates("g", "a=100 b=100 c=100 d=0")
	})
}
