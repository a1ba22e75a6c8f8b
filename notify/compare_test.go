package notify_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/probe"
)

// slow is a receiver that accepts notices after a delay.
type slow struct {
	*receiver
	takes time.Duration
}

func (r slow) Send(ctx context.Context, notices []notify.Notice) error {
	select {
	case <-time.After(r.takes):
		return r.receiver.Send(ctx, notices)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A change without a transition, while a notice about the same target is being sent, is reported afterwards.
func TestATargetThatChangesWhileItIsToldIsComparedAgain(t *testing.T) {
	in(t, "db web", func(s *scene) {
		s.spec.Timeout, s.spec.Settings = time.Minute, "slow"
		s.spec.Receivers[0].New = func(func(string) string) (notify.Sender, error) { return slow{s.to, 10 * time.Second}, nil }
		s.apply()
		if _, err := s.engine.Change(engine.Change{Dependencies: map[string][]string{"web": {"db"}}}); err != nil {
			t.Fatal(err)
		}
		s.say(probe.Failure, "db")
		s.say(probe.Failure, "web")
		pass(time.Minute)
		s.expect("db not_ready")
		s.say(probe.Success, "db")
		pass(10 * time.Second)
		s.expect("db ready ends") // the notice that web is not ready is being sent
		if _, err := s.engine.Change(engine.Change{Remove: []probe.ID{{Target: "web", Kind: probe.Readiness}}}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		s.expect("web not_ready, web removed ends")
	})
}

func TestAGroupThatIsRemovedIsNoLongerInTrouble(t *testing.T) {
	in(t, "web", func(s *scene) {
		s.say(probe.Failure, "web")
		s.expectTogether("web not_ready", "all down")
		if err := s.groups.Apply(map[string]group.Rule{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		s.expect("all removed ends")
	})
}

// A notifier that coalesces compares changed subjects immediately, not at the next tick.
func TestWhatIsCoalescedIsToldAtOnce(t *testing.T) {
	in(t, "web other", func(s *scene) {
		s.spec.Coalesce = true
		s.apply()
		if err := s.groups.Apply(map[string]group.Rule{}); err != nil { // their changes would trigger a comparison
			t.Fatal(err)
		}
		pass(time.Second)
		began := time.Now()
		s.say(probe.Failure, "web")
		s.expect("web not_ready")
		if st := s.status(); st.Last.Sub(s.engine.Records().History("web")[0].At) > 100*time.Millisecond {
			t.Errorf("it is told after %v, %v after it began to fail", st.Last.Sub(s.engine.Records().History("web")[0].At), st.Last.Sub(began))
		}
	})
}

// A receiver with the same name but a different identity has no notices yet.
func TestAReceiverOfAnotherIdentityIsToldAnew(t *testing.T) {
	in(t, "web b c d", func(s *scene) {
		s.spec.Receivers[0].Identity = "https://chat/one"
		s.spec.Settings = "one"
		s.apply()
		s.say(probe.Failure, "web")
		s.expect("web not_ready")
		s.spec.Settings = "labels"
		s.apply()
		pass(time.Second)
		s.expect("")
		s.spec.Receivers[0].Identity = "https://chat/two"
		s.spec.Settings = "two"
		s.apply()
		pass(time.Second)
		s.expect("web not_ready")
		for key, value := range valuesOf(s.notifiers) {
			if strings.Contains(key+string(value), "chat") {
				t.Errorf("the value %s = %s shows the identity, which may be secret", key, value)
			}
		}
		if got := s.status().Receiver; strings.Contains(got, "#") {
			t.Errorf("it is shown as %q", got)
		}
	})
}

// A trouble that is no longer selected ends for the receiver at that time, not when the trouble began.
func TestATroubleThatIsNoLongerSelectedEndsNow(t *testing.T) {
	in(t, "web b c d", func(s *scene) {
		s.say(probe.Failure, "web")
		s.expect("web not_ready")
		pass(time.Minute)
		s.spec.Selection.Targets = nil
		s.spec.Settings = "groups only"
		s.apply()
		pass(time.Second)
		if n := s.to.accepted[0]; n.EndsAt.Sub(n.StartsAt) < time.Minute || n.Reason != "" || n.Summary() != "web is unselected" {
			t.Errorf("told: %+v", n)
		}
		s.expect("web unselected ends")
	})
}

// While a reload waits for a receiver, the saved values are the receiver's accepted notices.
func TestTheValuesStayWhileAReceiverIsReplaced(t *testing.T) {
	in(t, "web other", func(s *scene) {
		s.say(probe.Failure, "web")
		s.expect("web not_ready")
		s.spec.Settings = "stays"
		s.spec.Receivers[0].New = func(func(string) string) (notify.Sender, error) { return staying{s.to}, nil }
		s.apply()
		s.say(probe.Failure, "other") // its notice is being sent
		before := valuesOf(s.notifiers)
		s.spec.Settings = "again"
		applied := make(chan struct{})
		go func() { s.apply(); close(applied) }()
		pass(time.Second)
		for key, want := range before {
			if value, ok := valueOf(s.notifiers, key); !ok || !bytes.Equal(value, want) {
				t.Errorf("meanwhile the value of %s is %s, not %s", key, value, want)
			}
		}
		<-applied
		for key, want := range before {
			if value, ok := valueOf(s.notifiers, key); !ok || !bytes.Equal(value, want) {
				t.Errorf("afterwards the value of %s is %s, not %s", key, value, want)
			}
		}
	})
}

// staying is a receiver that takes long to close.
type staying struct{ *receiver }

func (r staying) Send(ctx context.Context, _ []notify.Notice) error {
	<-ctx.Done()
	time.Sleep(2 * time.Second)
	return ctx.Err()
}
