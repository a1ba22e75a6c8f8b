package notify_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/followtest"
)

// takeover is a scene in which web depends on db, which another engine probes until this engine takes it over.
type takeover struct {
	*scene
	db     probe.ID
	rule   probe.Rule
	others *followtest.Others
}

// inTakeovers runs a test with a receiver that gets each transition and one that gets current states, with the instance
// of db known immediately, and after a moment.
func inTakeovers(t *testing.T, test func(s *takeover, moment time.Duration)) {
	for _, coalesce := range []bool{false, true} {
		for _, moment := range []time.Duration{0, 200 * time.Millisecond} {
			t.Run(fmt.Sprintf("coalesce=%v/%v", coalesce, moment), func(t *testing.T) {
				in(t, "web", func(s *scene) {
					s.spec.Coalesce, s.spec.Selection.Groups = coalesce, nil
					s.apply()
					s.answer(probe.Success, "db")
					to := &takeover{scene: s, db: probe.ID{Target: "db", Kind: probe.Readiness}, rule: probe.Rule{Period: 5 * time.Second, FailureThreshold: 3}}
					to.others = followtest.New(t, to.rule, to.db)
					defer to.others.Follow(s.engine, 9*time.Second)()
					s.depend()
					pass(time.Second)
					test(to, moment)
				})
			})
		}
	}
}

// takeOver moves db to this engine, which learns its instance after a moment.
func (s *takeover) takeOver(moment time.Duration) {
	s.t.Helper()
	memory, _ := s.others.Snapshot(s.db)
	known, _ := s.others.Target("db")
	p := probe.Probe{Rule: s.rule, Handler: probe.HandlerFunc(func(_ context.Context, to probe.Target) probe.Result { return s.outcome(to.Name) })}
	if _, err := s.engine.Owner("fleet").Change(engine.Change{Set: probe.Set{s.db: p}, Memories: map[probe.ID]engine.Memory{s.db: memory}}); err != nil {
		s.t.Fatal(err)
	}
	if moment == 0 {
		s.engine.Report(known.Instance) // before the other engine stops showing it
	}
	if _, err := s.others.Apply(probe.Set{}); err != nil {
		s.t.Fatal(err)
	}
	s.others.Report(probe.Instance{Target: "db", Phase: probe.Absent})
	if moment > 0 {
		pass(moment)
		s.engine.Report(known.Instance)
	}
}

func TestAChildIsNotToldWhenItsParentHasFailedBeforeItIsTakenOver(t *testing.T) {
	inTakeovers(t, func(s *takeover, moment time.Duration) {
		s.answer(probe.Failure, "web", "db")
		pass(2 * time.Second)
		s.others.Say(s.db, probe.Failing)
		pass(2 * time.Second)
		s.takeOver(moment)
		pass(2 * time.Minute)
		s.expect("db not_ready")
		s.answer(probe.Success, "db")
		pass(time.Minute)
		s.expect("db ready ends, web not_ready") // it fails by itself
	})
}

// Web has been unreachable for a long time when db is taken over.
func TestAChildStaysUnreachableWhenItsParentIsTakenOver(t *testing.T) {
	inTakeovers(t, func(s *takeover, moment time.Duration) {
		s.answer(probe.Failure, "web", "db")
		s.others.Say(s.db, probe.Failing)
		pass(time.Minute)
		s.takeOver(moment)
		pass(2 * time.Minute)
		s.expect("db not_ready")
	})
}

func TestATroubleOfAChildIsToldWhenItsParentIsTakenOver(t *testing.T) {
	inTakeovers(t, func(s *takeover, moment time.Duration) {
		s.answer(probe.Failure, "web")
		pass(8 * time.Second)
		s.takeOver(moment)
		pass(30 * time.Second)
		s.expect("web not_ready")
		s.answer(probe.Success, "web")
		pass(5 * time.Second)
		s.expect("web ready ends")
	})
}
