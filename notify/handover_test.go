package notify_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/probe"
)

// moved is a scene in which web is in trouble, its receiver was notified, and the target moves to another engine, which
// has no history and gets the notices from the first engine.
func moved(t *testing.T, how probe.Outcome, test func(s *scene)) {
	in(t, "db web", func(s *scene) {
		s.spec.ExternalURL = "https://sonde.example.com"
		s.apply()
		s.say(probe.Failure, "web")
		s.expect("web not_ready")
		told := s.notifiers.Notified("web")
		if s.notifiers.Notified("db") != nil {
			t.Errorf("db is in trouble: %s", s.notifiers.Notified("db"))
		}
		s.stop()
		s.outcomes["web"] = how
		s.isOthers.Store(true)
		s.start(nil, nil)
		if err := s.notifiers.SetNotified("web", told); err != nil {
			t.Fatal(err)
		}
		if again := s.notifiers.Notified("web"); string(again) != string(told) {
			t.Errorf("told: %s, want %s", again, told)
		}
		pass(2500 * time.Millisecond)
		s.isOthers.Store(false)
		pass(2500 * time.Millisecond)
		test(s)
	})
}

func TestTheNextOwnerDoesNotTellOfATroubleAgain(t *testing.T) {
	moved(t, probe.Failure, func(s *scene) {
		s.expect("")
		s.say(probe.Success, "web")
		s.expect("web ready ends")
		if told := s.notifiers.Notified("web"); told != nil {
			t.Errorf("it is in trouble: %s", told)
		}
	})
}

func TestTheNextOwnerTellsThatATroubleHasEndedMeanwhile(t *testing.T) {
	moved(t, probe.Success, func(s *scene) {
		for _, n := range s.to.accepted {
			if n.Link != "https://sonde.example.com/#/target/web" {
				t.Errorf("the notice links to %q", n.Link)
			}
		}
		s.expect("web ready ends")
	})
}

// Another engine takes over the notices of a group that is down, and gets the notices that the first engine has sent.
func TestTheNextEngineKnowsWhatWasToldAboutAGroup(t *testing.T) {
	for name, c := range map[string]struct {
		how  probe.Outcome
		want string
	}{
		"it is down": {probe.Failure, ""},
		"it is up":   {probe.Success, "all ready ends"},
	} {
		in(t, "db", func(s *scene) {
			s.spec.Selection = notify.Selection{Groups: []string{"*"}}
			s.apply()
			s.say(probe.Failure, "db")
			s.expect("all down")
			told := s.notifiers.NotifiedOfGroup("all")
			if told == nil || s.notifiers.NotifiedOfGroup("other") != nil || s.notifiers.Notified("all") != nil {
				t.Errorf("told: %s", told)
			}
			s.stop()
			s.outcomes["db"] = c.how
			s.notifier.Store(int32(notify.OtherEngine))
			s.start(nil, nil)
			pass(5 * time.Second)
			s.notifier.Store(int32(notify.NoEngine))
			if err := s.notifiers.SetNotifiedOfGroup("all", told); err != nil {
				t.Fatal(err)
			}
			pass(5 * time.Second)
			s.expect("")
			s.notifier.Store(int32(notify.ThisEngine))
			pass(5 * time.Second)
			if got := s.to.take(); got != c.want {
				t.Errorf("%s: told: %q, want %q", name, got, c.want)
			}
			s.say(probe.Success, "db")
			if told := s.notifiers.NotifiedOfGroup("all"); told != nil {
				t.Errorf("%s: it is down: %s", name, told)
			}
		})
	}
}

func TestWhatWasToldStaysTheSameWhileATroubleLasts(t *testing.T) {
	moved(t, probe.Failure, func(s *scene) {
		before := s.notifiers.Notified("web")
		pass(time.Hour)
		if after := s.notifiers.Notified("web"); string(after) != string(before) {
			t.Errorf("told: %s, before %s", after, before)
		}
	})
}

func TestTheNextOwnerTellsThatATargetWasRemovedMeanwhile(t *testing.T) {
	in(t, "db web", func(s *scene) {
		s.say(probe.Failure, "web")
		s.expect("web not_ready")
		told := s.notifiers.Notified("web")
		s.stop()
		delete(s.set, probe.ID{Target: "web", Kind: probe.Readiness})
		s.start(nil, nil)
		if err := s.notifiers.SetNotified("web", told); err != nil {
			t.Fatal(err)
		}
		pass(2500 * time.Millisecond)
		s.expect("web removed ends")
	})
}

// An engine that has lost its lease for a time has the target throughout, but another engine has sent notices of it
// meanwhile.
func TestAnotherEngineMayHaveToldTheEnd(t *testing.T) {
	in(t, "db web", func(s *scene) {
		s.say(probe.Failure, "web")
		s.expect("web not_ready")
		s.isOthers.Store(true)
		s.say(probe.Success, "web")
		if err := s.notifiers.SetNotified("web", nil); err != nil {
			t.Fatal(err)
		}
		s.isOthers.Store(false)
		pass(2500 * time.Millisecond)
		s.expect("")
	})
}

// The engine has lost web, and gets it back while a receiver is slow to accept a notice of another target.
func TestWhatWasToldIsKnownAfterANoticeThatIsUnderWay(t *testing.T) {
	in(t, "db web", func(s *scene) {
		members, err := probe.NewSelector([]string{"db"}, nil)
		if err == nil {
			err = s.groups.Apply(map[string]group.Rule{"dbs": {Members: members}})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.say(probe.Failure, "web")
		s.expect("web not_ready")
		told, web := s.notifiers.Notified("web"), probe.ID{Target: "web", Kind: probe.Readiness}
		s.isOthers.Store(true)
		s.isConfigured.Store(true)
		if _, err := s.engine.Change(engine.Change{Remove: []probe.ID{web}}); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Second)
		s.to.set(func(r *receiver) { r.slow = 4 * time.Second })
		s.answer(probe.Failure, "db")
		pass(2 * time.Second) // the notice that dbs is down is being sent
		s.isConfigured.Store(false)
		s.answer(probe.Success, "db")
		pass(4 * time.Second) // the next ones report that it is ready, and web belongs to another engine
		if _, err := s.engine.Change(engine.Change{Set: probe.Set{web: s.set[web]}}); err != nil {
			t.Fatal(err)
		}
		if err := s.notifiers.SetNotified("web", told); err != nil {
			t.Fatal(err)
		}
		s.isOthers.Store(false)
		pass(10 * time.Second)
		s.expect("dbs down, dbs ready ends")
		s.say(probe.Success, "web")
		pass(5 * time.Second)
		s.expect("web ready ends")
	})
}

func TestWhatCannotBeReadChangesNothing(t *testing.T) {
	in(t, "db web", func(s *scene) {
		s.say(probe.Failure, "web")
		s.expect("web not_ready")
		told := s.notifiers.Notified("web")
		for _, value := range []string{"", "{}", `[{"notifier": 1}]`, "\x00"} {
			if err := s.notifiers.SetNotified("web", []byte(value)); err == nil {
				t.Errorf("%q has no error", value)
			}
		}
		// Receivers that do not exist.
		if err := s.notifiers.SetNotified("db", []byte(`[{"notifier": "other", "receiver": "a"}]`)); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if after := s.notifiers.Notified("web"); string(after) != string(told) {
			t.Errorf("told: %s, want %s", after, told)
		}
	})
}

func TestTheSubjectOfAKeyIsFound(t *testing.T) {
	in(t, "web", func(s *scene) {
		s.say(probe.Failure, "web")
		found := map[notify.Subject]int{}
		for key := range valuesOf(s.notifiers) {
			if subject, ok := notify.NotifiedSubject(key); ok {
				found[subject]++
			}
		}
		if len(found) != 2 || found[notify.Subject{Kind: notify.KindTarget, Name: "web"}] != 1 || found[notify.Subject{Kind: notify.KindGroup, Name: "all"}] != 1 {
			t.Errorf("found: %v", found)
		}
	})
}
