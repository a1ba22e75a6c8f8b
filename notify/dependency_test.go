package notify_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/followtest"
)

// slowParent makes web depend on db, whose probe detects a failure after 5 to 15 s, and returns the maximum detection
// time. The probe of web takes at most a second. Groups are not selected.
func (s *scene) slowParent() (detection time.Duration) {
	s.t.Helper()
	s.spec.Selection.Groups = nil
	s.apply()
	id := probe.ID{Target: "db", Kind: probe.Readiness}
	slow := s.set[id]
	slow.Rule = probe.Rule{Period: 5 * time.Second, FailureThreshold: 3}
	s.set[id] = slow
	if _, err := s.engine.Apply(s.set); err != nil {
		s.t.Fatal(err)
	}
	s.depend()
	pass(15 * time.Second)
	s.expect("")
	return slow.Rule.WithDefaults().DetectionTime()
}

func (s *scene) depend() {
	s.t.Helper()
	if _, err := s.engine.Change(engine.Change{Dependencies: map[string][]string{"web": {"db"}}}); err != nil {
		s.t.Fatal(err)
	}
}

// answer sets the outcome of targets, without waiting.
func (s *scene) answer(o probe.Outcome, targets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range targets {
		s.outcomes[name] = o
	}
}

// A child that fails with its parent is not reported, although its own probe detects the failure first.
func TestAChildIsNotToldBeforeItsParentIsDecided(t *testing.T) {
	in(t, "db web", func(s *scene) {
		detection, rng := s.slowParent(), rand.New(rand.NewPCG(1, 2))
		for range 50 {
			pass(time.Duration(rng.Int64N(int64(5 * time.Second)))) // at any time in the parent's period
			s.answer(probe.Failure, "db", "web")
			pass(detection + 2*time.Second)
			s.expect("db not_ready")
			if st := s.status(); st.Pending != 0 || st.Held != 0 {
				t.Errorf("the status is %+v", st)
			}
			pass(time.Minute)
			s.answer(probe.Success, "web", "db")
			pass(15 * time.Second)
			s.expect("db ready ends")
		}
	})
}

// The parent is a target of another engine: its verdict arrives later, and without a history.
func TestAChildIsNotToldBeforeItsParentInAnotherEngineIsDecided(t *testing.T) {
	in(t, "web", func(s *scene) {
		s.spec.Selection.Groups = nil
		s.apply()
		const delay = 9 * time.Second
		rule, db := probe.Rule{Period: 5 * time.Second, FailureThreshold: 3}, probe.ID{Target: "db", Kind: probe.Readiness}
		others := followtest.New(t, rule, db)
		defer others.Follow(s.engine, delay)()
		s.depend()
		detection := rule.WithDefaults().DetectionTime()

		s.answer(probe.Failure, "web")
		pass(detection + delay - time.Second) // just before the latest time at which the verdict may arrive
		s.expect("")
		others.Say(db, probe.Failing)
		pass(time.Minute)
		s.expect("")
		others.Say(db, probe.Passing)
		pass(time.Minute)
		s.expect("web not_ready")
		s.answer(probe.Success, "web")
		pass(time.Minute)
		s.expect("web ready ends")
		s.answer(probe.Failure, "web")
		pass(detection + delay + 3*time.Second)
		s.expect("web not_ready")
		s.answer(probe.Success, "web")
		pass(time.Minute)
		s.expect("web ready ends")

		s.answer(probe.Failure, "web") // both fail for a while, and recover before the wait is over
		pass(2 * time.Second)
		others.Say(db, probe.Failing)
		pass(2 * time.Second)
		others.Say(db, probe.Passing)
		s.answer(probe.Success, "web")
		pass(time.Minute)
		s.expect("")
	})
}

// A trouble of the child itself is reported once the parent is decided, even if it has ended by then, and in order.
// Other targets do not wait for it.
func TestATroubleOfAChildIsToldWhenItsParentIsDecided(t *testing.T) {
	in(t, "db web other", func(s *scene) {
		detection, rng := s.slowParent(), rand.New(rand.NewPCG(3, 4))
		for n := range 30 {
			pass(time.Duration(rng.Int64N(int64(5 * time.Second))))
			s.answer(probe.Failure, "web")
			began := time.Now()
			pass(1500 * time.Millisecond)
			if s.expect(""); s.status().Held != 1 {
				t.Errorf("the status is %+v", s.status())
			}
			s.say(probe.Failure, "other")
			s.expect("other not_ready")
			s.say(probe.Success, "other")
			s.expect("other ready ends")
			want := "web not_ready"
			if n%2 == 0 { // a short trouble
				s.answer(probe.Success, "web")
				want += ", web ready ends"
			}
			pass(time.Until(began.Add(detection + 2*time.Second)))
			s.expect(want)
			s.say(probe.Success, "web")
			_ = s.to.take()
		}
	})
}

// The same holds for a receiver that was unreachable: the history of both targets decides.
func TestAReceiverThatWasAwayIsNotToldOfAChildThatIsExplained(t *testing.T) {
	in(t, "db web", func(s *scene) {
		detection := s.slowParent()
		s.to.set(func(r *receiver) { r.fails = errors.New("status 503") })
		s.answer(probe.Failure, "db", "web")
		pass(detection + time.Second)
		s.answer(probe.Success, "db", "web")
		pass(time.Minute)
		s.answer(probe.Failure, "web")
		pass(time.Minute)
		s.answer(probe.Success, "web")
		pass(time.Minute)
		s.to.set(func(r *receiver) { r.fails = nil })
		pass(time.Minute)
		if got := s.to.take(); strings.Count(got, "web not_ready") != 1 || strings.Count(got, "web ready ends") != 1 || !strings.HasPrefix(got, "db not_ready, db ready ends") {
			t.Errorf("told: %s", got)
		}
	})
}

// If an engine exits while a notice waits, the notice is not lost.
func TestWhatWaitsIsToldByTheNextEngine(t *testing.T) {
	in(t, "db web", func(s *scene) {
		detection := s.slowParent()
		s.answer(probe.Failure, "web")
		pass(1500 * time.Millisecond)
		s.answer(probe.Success, "web")
		pass(1500 * time.Millisecond)
		s.expect("")
		s.restart(func() {})
		s.depend()
		pass(detection)
		s.expect("web not_ready, web ready ends")
	})
}

// An engine that has lost its lease while a notice waits leaves the notice to the next owner.
func TestWhatWaitsIsNotToldByAnEngineThatMayNoLongerTell(t *testing.T) {
	in(t, "db web", func(s *scene) {
		detection := s.slowParent()
		s.answer(probe.Failure, "web")
		pass(3 * time.Second)
		s.isOthers.Store(true)
		pass(detection + time.Minute)
		s.expect("")
		s.isOthers.Store(false)
		pass(3 * time.Second)
		s.expect("web not_ready")
		s.answer(probe.Success, "web")
		pass(3 * time.Second)
		s.expect("web ready ends")
	})
}

// A target that was paused, put under maintenance, damped or removed while its notice waited is not reported.
func TestATroubleThatWaitsIsNotToldOfATargetThatIsSilencedMeanwhile(t *testing.T) {
	web := probe.ID{Target: "web", Kind: probe.Readiness}
	for name, c := range map[string]struct {
		silence func(s *scene)
		end     func(s *scene) // ends the silence; nil for none
	}{
		"paused": {
			func(s *scene) {
				s.engine.Admin().Pause("web", engine.Pause{Reason: probe.ReasonPaused, Since: time.Now()})
			},
			func(s *scene) { s.engine.Admin().Unpause("web") },
		},
		"paused for a moment": {
			func(s *scene) {
				s.engine.Admin().Pause("web", engine.Pause{Reason: probe.ReasonMaintenance, Since: time.Now()})
				pass(time.Second)
				s.answer(probe.Success, "web")
				pass(2 * time.Second)
				s.engine.Admin().Unpause("web")
			},
			nil,
		},
		"under maintenance": {
			func(s *scene) {
				s.engine.Admin().Pause("web", engine.Pause{Reason: probe.ReasonMaintenance, Since: time.Now()})
			},
			func(s *scene) { s.engine.Admin().Unpause("web") },
		},
		"removed": {
			func(s *scene) {
				if _, err := s.engine.Change(engine.Change{Remove: []probe.ID{web}}); err != nil {
					s.t.Fatal(err)
				}
			},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, "db web", func(s *scene) {
				detection := s.slowParent()
				s.answer(probe.Failure, "web")
				pass(3 * time.Second)
				c.silence(s)
				pass(detection + time.Minute)
				s.expect("")
				if c.end != nil {
					c.end(s)
					pass(detection + 5*time.Second)
					s.expect("web not_ready")
				}
				if st := s.status(); st.Held != 0 {
					t.Errorf("the status is %+v", st)
				}
			})
		})
	}
}

// A notifier that coalesces waits as well, and so does a group.
func TestGroupsAndCoalescedNoticesWaitForParents(t *testing.T) {
	in(t, "db web", func(s *scene) {
		detection := s.slowParent()
		s.spec.Coalesce = true
		s.spec.Selection.Groups = []string{"*"}
		members, err := probe.NewSelector([]string{"web"}, nil)
		if err == nil {
			err = s.groups.Apply(map[string]group.Rule{"webs": {Members: members}})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.apply()
		s.answer(probe.Failure, "db", "web")
		pass(detection + 5*time.Second)
		s.expect("db not_ready")
		s.answer(probe.Success, "db", "web")
		pass(15 * time.Second)
		s.expect("db ready ends")
		s.answer(probe.Failure, "web")
		pass(3 * time.Second)
		s.expect("")
		pass(detection + 2*time.Second)
		s.expectTogether("web not_ready", "webs down")
	})
}

// A group whose members were stopped on request is not reported as down, but is once another member fails.
func TestNobodyIsToldOfAGroupWhoseMembersWereStopped(t *testing.T) {
	in(t, "db web", func(s *scene) {
		s.spec.Selection.Groups = []string{"*"}
		members, err := probe.NewSelector([]string{"*"}, nil)
		if err == nil {
			err = s.groups.Apply(map[string]group.Rule{"all": {Members: members, MinReady: probe.Minimum{Count: 2}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.apply()
		s.answer(probe.Success, "db", "web")
		pass(15 * time.Second)
		for _, name := range []string{"db", "web"} {
			s.engine.Report(probe.Instance{Target: name, ID: "1", Phase: probe.Gone, Since: time.Now(), Reason: probe.ReasonOperatorStop})
		}
		pass(15 * time.Second)
		if v := s.groups.Get("all").View(); v.Last != probe.GatewayDown {
			t.Errorf("the group is %v", v.Last)
		}
		s.expect("")
		s.engine.Report(probe.Instance{Target: "web", ID: "2", Phase: probe.Gone, Since: time.Now(), Reason: probe.ReasonExited})
		pass(15 * time.Second)
		s.expectTogether("web exited", "all down")
	})
}

// However slow a parent is, its child waits for at most a minute.
func TestAChildWaitsForAMinuteAtTheMost(t *testing.T) {
	in(t, "db web", func(s *scene) {
		s.slowParent()
		id := probe.ID{Target: "db", Kind: probe.Readiness}
		slow := s.set[id]
		slow.Rule.Period = time.Hour
		s.set[id] = slow
		if _, err := s.engine.Apply(s.set); err != nil {
			t.Fatal(err)
		}
		s.answer(probe.Failure, "web")
		pass(58 * time.Second)
		s.expect("")
		pass(5 * time.Second)
		s.expect("web not_ready")
	})
}
