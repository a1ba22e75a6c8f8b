package notify_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/adapter/notify"
	"github.com/sonde-probe/sonde/probe"
)

// moved is a scene in which web is in trouble, its receiver knows that, and the target moves to another engine, which begins
// with no history and is told by the first one what was told.
func moved(t *testing.T, how probe.Outcome, test func(s *scene)) {
	in(t, "db web", func(s *scene) {
		s.say(probe.Failure, "web")
		s.expect("web not_ready")
		told := s.notifiers.Told("web")
		if s.notifiers.Told("db") != nil {
			t.Errorf("db is in trouble: %s", s.notifiers.Told("db"))
		}
		s.stop()
		s.outcomes["web"] = how
		s.isOthers.Store(true)
		s.start(nil, nil)
		if err := s.notifiers.SetTold("web", told); err != nil {
			t.Fatal(err)
		}
		if again := s.notifiers.Told("web"); string(again) != string(told) {
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
		if told := s.notifiers.Told("web"); told != nil {
			t.Errorf("it is in trouble: %s", told)
		}
	})
}

func TestTheNextOwnerTellsThatATroubleHasEndedMeanwhile(t *testing.T) {
	moved(t, probe.Success, func(s *scene) { s.expect("web ready ends") })
}

func TestWhatWasToldStaysTheSameWhileATroubleLasts(t *testing.T) {
	moved(t, probe.Failure, func(s *scene) {
		before := s.notifiers.Told("web")
		pass(time.Hour)
		if after := s.notifiers.Told("web"); string(after) != string(before) {
			t.Errorf("told: %s, before %s", after, before)
		}
	})
}

// An engine that has lost its lease for a time has the target all along, which another one has told of meanwhile.
func TestAnotherEngineMayHaveToldTheEnd(t *testing.T) {
	in(t, "db web", func(s *scene) {
		s.say(probe.Failure, "web")
		s.expect("web not_ready")
		s.isOthers.Store(true)
		s.say(probe.Success, "web")
		if err := s.notifiers.SetTold("web", nil); err != nil {
			t.Fatal(err)
		}
		s.isOthers.Store(false)
		pass(2500 * time.Millisecond)
		s.expect("")
	})
}

func TestWhatCannotBeReadChangesNothing(t *testing.T) {
	in(t, "db web", func(s *scene) {
		s.say(probe.Failure, "web")
		s.expect("web not_ready")
		told := s.notifiers.Told("web")
		for _, value := range []string{"", "{}", `[{"notifier": 1}]`, "\x00"} {
			if err := s.notifiers.SetTold("web", []byte(value)); err == nil {
				t.Errorf("%q has no error", value)
			}
		}
		// Receivers that there are not.
		if err := s.notifiers.SetTold("db", []byte(`[{"notifier": "other", "receiver": "a"}]`)); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if after := s.notifiers.Told("web"); string(after) != string(told) {
			t.Errorf("told: %s, want %s", after, told)
		}
	})
}

func TestTheTargetOfAKeyIsFound(t *testing.T) {
	in(t, "db web", func(s *scene) {
		s.say(probe.Failure, "web")
		found := map[string]int{}
		for key := range s.notifiers.Values() {
			if target, ok := notify.ToldTarget(key); ok {
				found[target]++
			}
		}
		if len(found) != 1 || found["web"] != 1 {
			t.Errorf("found: %v", found)
		}
	})
}
