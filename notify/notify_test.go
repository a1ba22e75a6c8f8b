package notify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// receiver is a Sender that records the notices that it has accepted.
type receiver struct {
	mu       sync.Mutex
	fails    error // the error of all attempts
	rejects  string
	hangs    bool
	slow     time.Duration // delay before it accepts
	accepted []notify.Notice
	closed   int
}

func (r *receiver) Close() error {
	r.set(func(r *receiver) { r.closed++ })
	return nil
}

func (r *receiver) Send(ctx context.Context, notices []notify.Notice) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hangs {
		r.mu.Unlock()
		<-ctx.Done()
		r.mu.Lock()
		return ctx.Err()
	}
	if slow := r.slow; slow > 0 {
		r.mu.Unlock()
		time.Sleep(slow)
		r.mu.Lock()
	}
	if r.fails != nil {
		return r.fails
	}
	for i := range notices {
		if notices[i].Name == r.rejects {
			return errors.Join(notify.ErrRejected, errors.New("status 400"))
		}
	}
	r.accepted = append(r.accepted, notices...)
	return nil
}

func (r *receiver) set(change func(*receiver)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

// take returns the notices accepted since the last call, such as "web not_ready" and "web ready ends".
func (r *receiver) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, n := range r.accepted {
		text := n.Name + " " + n.State
		if !n.Firing {
			text += " ends"
		}
		if n.Repeated {
			text += " again"
		}
		all = append(all, text)
	}
	r.accepted = nil
	return strings.Join(all, ", ")
}

// scene is an engine with one notifier, whose targets a test controls.
type scene struct {
	t         *testing.T
	engine    *engine.Engine
	groups    *group.Groups
	notifiers *notify.Notifiers
	spec      notify.Spec
	to        *receiver
	set       probe.Set
	values    map[string][]byte // the values as saved in a state file

	isOthers     atomic.Bool  // another engine owns the targets
	doubted      atomic.Value // the target about which the engine doubts its verdicts
	isConfigured atomic.Bool  // targets exist that the engine does not have
	notifier     atomic.Int32 // notify.Notifier of all groups

	mu       sync.Mutex
	outcomes map[string]probe.Outcome
	attempts []time.Time
	changed  map[string]struct{} // keys of values that have changed and were not saved since

	stop func()
}

// in runs a test in a bubble, with targets that are ready.
func in(t *testing.T, targets string, test func(s *scene)) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t, to: &receiver{}, values: map[string][]byte{}, outcomes: map[string]probe.Outcome{}, set: probe.Set{}, changed: map[string]struct{}{}}
		s.spec = notify.Spec{
			Output: "test", Selection: notify.Selection{Targets: &probe.Selector{}, Groups: []string{"*"}}, Batch: 10, Timeout: 5 * time.Second,
			Receivers: []notify.Receiver{{Name: "a", New: func(func(string) string) (notify.Sender, error) { return s.to, nil }}},
		}
		for _, name := range strings.Fields(targets) {
			s.outcomes[name] = probe.Success
			s.set[probe.ID{Target: name, Kind: probe.Readiness}] = probe.Probe{
				Rule: probe.Rule{Period: time.Second, FailureThreshold: 1}, Target: probe.Target{Static: true, Labels: map[string]string{"team": "shop"}},
				Handler: probe.HandlerFunc(func(_ context.Context, to probe.Target) probe.Result { return s.outcome(to.Name) }),
			}
		}
		s.start(nil, nil)
		defer func() { s.stop() }()
		pass(5 * time.Second)
		if got := s.to.take(); got != "" {
			t.Fatalf("told at the start: %s", got)
		}
		test(s)
	})
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *scene) outcome(target string) probe.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = append(s.attempts, time.Now())
	o := s.outcomes[target]
	switch o {
	case probe.Failure:
		return probe.Fail(probe.ReasonHTTPStatus, "status 503")
	case probe.Warning:
		return probe.Warn("test.slow", "took 2s")
	}
	return probe.Result{Outcome: o}
}

func (s *scene) say(o probe.Outcome, targets ...string) {
	s.mu.Lock()
	for _, name := range targets {
		s.outcomes[name] = o
	}
	s.mu.Unlock()
	pass(2500 * time.Millisecond)
}

// start starts an engine that resumes from the histories and memories of another one.
func (s *scene) start(past []engine.TargetTransition, memories map[probe.ID]engine.Memory) {
	s.t.Helper()
	s.engine = engine.New(engine.Config{Recorded: func(string, engine.Record) { s.notifiers.TransitionsChanged() }})
	s.groups = group.New(group.Config{Engine: s.engine})
	s.notifiers = notify.New(notify.Config{
		Engine: s.engine, Groups: s.groups, MayNotify: func(string) bool { return !s.isOthers.Load() },
		IsConfigured: func(string) bool { return s.isConfigured.Load() },
		IsDoubted:    func(of notify.Subject) bool { return of.Name == s.doubted.Load() },
		NotifierOf:   func(string) notify.Notifier { return notify.Notifier(s.notifier.Load()) },
		Changed:      s.mark,
	})
	for _, tr := range past {
		s.engine.Records().RestoreHistory(tr.Target, []engine.Transition{tr.Transition})
	}
	if wrong := s.notifiers.Restore(s.values); wrong != nil {
		s.t.Fatal(wrong)
	}
	if _, err := s.engine.Change(engine.Change{Set: s.set, Memories: memories}); err != nil {
		s.t.Fatal(err)
	}
	if err := s.groups.Apply(map[string]group.Rule{"all": {MinReady: probe.Minimum{}}}); err != nil {
		s.t.Fatal(err)
	}
	s.apply()
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.engine.Run(ctx) })
	running.Go(func() { _ = s.groups.Run(ctx) })
	running.Go(func() { _ = s.notifiers.Run(ctx) })
	s.stop = func() { cancel(); running.Wait() }
}

func (s *scene) apply() {
	s.t.Helper()
	commit, err := s.notifiers.Plan(map[string]notify.Spec{"oncall": s.spec})
	if err != nil {
		s.t.Fatal(err)
	}
	commit()
}

// restart stops the engine, and starts another one with the values of a state file.
func (s *scene) restart(between func()) {
	s.t.Helper()
	s.replace(func() {
		s.values = valuesOf(s.notifiers)
		between()
	})
	pass(2500 * time.Millisecond)
}

// replace stops the engine, and starts another one with its histories and memories, and with the values after calling
// between.
func (s *scene) replace(between func()) {
	s.t.Helper()
	s.stop()
	past, _ := s.engine.Records().TransitionsAfter(0, 1<<20)
	memories := map[probe.ID]engine.Memory{}
	for t := range s.engine.Select(context.Background(), engine.Filter{}) {
		for i := range t.Probes {
			memories[t.Probes[i].ID], _ = s.engine.Snapshot(t.Probes[i].ID)
		}
	}
	between()
	s.start(past, memories)
}

func (s *scene) expect(want string) {
	s.t.Helper()
	if got := s.to.take(); got != want {
		s.t.Errorf("told: %s; want %s", got, want)
	}
}

// expectTogether expects notices in any order: changes at the same moment, such as those of a target and its group, may
// arrive in any order.
func (s *scene) expectTogether(want ...string) {
	s.t.Helper()
	got := strings.Split(s.to.take(), ", ")
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		s.t.Errorf("notified: %q; want %q, in any order", got, want)
	}
}

// cursorKey is the key of the receiver's cursor.
const cursorKey = `cursor/["oncall","a"]`

func (s *scene) mark(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed[key] = struct{}{}
}

// valuesOf returns all values as saved in a state file.
func valuesOf(n *notify.Notifiers) map[string][]byte {
	all := map[string][]byte{}
	for _, key := range n.Keys() {
		if value, ok := valueOf(n, key); ok {
			all[key] = value
		}
	}
	return all
}

// valueOf returns a value as saved in a state file.
func valueOf(n *notify.Notifiers, key string) ([]byte, bool) {
	value, ok := n.Value(key)
	text, err := json.Marshal(value)
	return text, ok && err == nil
}

// save saves the changed values whose keys begin with a prefix, as a state file does: see store.Values.
func (s *scene) save(prefix string) {
	s.mu.Lock()
	keys := slices.Sorted(maps.Keys(s.changed))
	keys = slices.DeleteFunc(keys, func(key string) bool { return !strings.HasPrefix(key, prefix) })
	for _, key := range keys {
		delete(s.changed, key)
	}
	s.mu.Unlock()
	for _, key := range slices.Backward(keys) {
		if value, ok := valueOf(s.notifiers, key); ok {
			s.values[key] = value
		} else {
			delete(s.values, key)
		}
	}
}

// kill kills the engine after a time in which the receiver is unreachable, and starts another one with the saved values.
func (s *scene) kill(away func()) {
	s.t.Helper()
	s.to.set(func(r *receiver) { r.fails = errors.New("down") })
	away()
	s.replace(func() { s.to.set(func(r *receiver) { r.fails = nil }) })
	pass(5 * time.Second)
}

// lastTransition returns the number of the last transition of targets.
func (s *scene) lastTransition() uint64 {
	_, last := s.engine.Records().TransitionsAfter(0, 0)
	return last
}

// expectCursorWaits expects the saved cursor to stay after a transition until the notices of later transitions are
// saved.
func (s *scene) expectCursorWaits(before uint64) {
	s.t.Helper()
	s.expectCursor("before the notices are saved", before)
	s.save("told/")
	s.expectCursor("once they are", s.lastTransition())
}

// expectCursor saves the cursor, and expects it to be after a transition of targets.
func (s *scene) expectCursor(when string, want uint64) {
	s.t.Helper()
	if got := s.saveCursor().After; got != want {
		s.t.Errorf("%s: the saved cursor is %d, want %d", when, got, want)
	}
}

// savedCursor is the value of cursorKey.
type savedCursor struct {
	After uint64
	Lost  uint64
}

func (s *scene) saveCursor() (c savedCursor) {
	s.t.Helper()
	s.save(cursorKey)
	if err := json.Unmarshal(s.values[cursorKey], &c); err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *scene) status() notify.Status { return s.notifiers.Statuses()[0] }

// maxTransitions is the number of transitions of a target that an engine remembers.
const maxTransitions = 32

func TestTroublesAreToldWhenTheyBeginAndEnd(t *testing.T) {
	in(t, "db web", func(s *scene) {
		s.say(probe.Failure, "web")
		began := time.Now()
		n := s.to.accepted[0]
		if n.Reason != probe.ReasonHTTPStatus || n.Detail != "status 503" || n.Probe != "readiness" || n.Labels["team"] != "shop" || n.Severity != probe.SeverityCritical || n.StartsAt.After(began) {
			t.Errorf("the notice is %+v", n)
		}
		s.expect("web not_ready")
		s.say(probe.Failure, "db")
		s.expectTogether("db not_ready", "all down")
		s.say(probe.Success, "db", "web")
		s.expectTogether("db ready ends", "web ready ends", "all ready ends")
		if st := s.status(); st.Sent != 6 || st.Pending != 0 || st.Firing != 0 || st.Failed != 0 {
			t.Errorf("the status is %+v", st)
		}
	})
}

// A degraded target is in trouble with the severity warning; failures make it worse.
func TestATargetThatIsDegradedIsTold(t *testing.T) {
	in(t, "db web", func(s *scene) {
		s.say(probe.Warning, "web")
		if n := s.to.accepted[0]; n.Severity != probe.SeverityWarning || n.Probe != "readiness" || n.Reason != "test.slow" || n.Detail != "took 2s" {
			t.Errorf("the notice is %+v", n)
		}
		s.expect("web degraded")
		s.say(probe.Failure, "web")
		s.expect("web not_ready")
		s.say(probe.Success, "web")
		s.expect("web ready ends")
		s.say(probe.Warning, "web")
		s.expect("web degraded")
		s.say(probe.Success, "web")
		s.expect("")
		pass(5 * time.Second)
		s.expect("web ready ends")
		s.spec.Selection.Severity = probe.SeverityCritical
		s.apply()
		s.say(probe.Warning, "web")
		s.expect("")
		s.say(probe.Failure, "web")
		s.expect("web not_ready")
		s.say(probe.Warning, "web")
		s.expect("web degraded ends")
	})
}

// Everything that happens while a receiver is unreachable is reported in order when it is back.
func TestAReceiverThatWasAwayIsToldEverything(t *testing.T) {
	for name, away := range map[string]func(*receiver){
		"it refuses": func(r *receiver) { r.fails = errors.New("status 503") },
		"it hangs":   func(r *receiver) { r.hangs = true },
		"it asks for a pause": func(r *receiver) {
			r.fails = &notify.RetryError{Err: errors.New("status 429"), After: time.Hour}
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, "web other", func(s *scene) {
				s.to.set(away)
				var want []string
				for range 12 {
					s.say(probe.Failure, "web")
					s.say(probe.Success, "web")
					want = append(want, "web not_ready", "web ready ends")
				}
				if st := s.status(); st.Pending != 24 || st.PendingSince.IsZero() || st.Failed == 0 || st.Error == "" {
					t.Errorf("the status is %+v", st)
				}
				s.to.set(func(r *receiver) { r.fails, r.hangs = nil, false })
				pass(time.Minute)
				s.expect(strings.Join(want, ", "))
				if st := s.status(); st.Pending != 0 || st.Error != "" || st.Lost != 0 {
					t.Errorf("afterwards the status is %+v", st)
				}
			})
		})
	}
}

// If the history is too short for an outage, the state at that time is reported instead.
func TestWhatTheHistoryHasForgottenIsCounted(t *testing.T) {
	in(t, "web other", func(s *scene) {
		s.to.set(func(r *receiver) { r.fails = errors.New("down") })
		for range maxTransitions {
			s.say(probe.Failure, "web")
			s.say(probe.Success, "web")
		}
		s.say(probe.Failure, "web")
		s.to.set(func(r *receiver) { r.fails, r.hangs = nil, false })
		pass(time.Minute)
		got := strings.Split(s.to.take(), ", ")
		if st := s.status(); st.Lost != maxTransitions+1 || st.Pending != 0 || st.Firing != 1 {
			t.Errorf("the status is %+v", st)
		}
		if len(got) != maxTransitions-1 || got[len(got)-1] != "web not_ready" {
			t.Errorf("told %d: %v", len(got), got)
		}
	})
}

func TestANoticeThatIsRejectedDelaysNoOther(t *testing.T) {
	in(t, "a b c d e f", func(s *scene) {
		s.to.set(func(r *receiver) { r.rejects = "c" })
		s.say(probe.Failure, "a", "b", "c", "d", "e")
		for _, name := range []string{"a", "b", "d", "e"} {
			if got := s.to.accepted; !slices.ContainsFunc(got, func(n notify.Notice) bool { return n.Name == name }) {
				t.Errorf("%s was not told", name)
			}
		}
		if st := s.status(); st.Dropped != 1 || st.Failed != 0 {
			t.Errorf("the status is %+v", st)
		}
	})
}

// If a receiver rejects a notice, its status shows the error until it accepts one.
func TestARejectionIsTheErrorOfTheLatestAttempt(t *testing.T) {
	in(t, "a b c d", func(s *scene) {
		s.to.set(func(r *receiver) { r.rejects = "a" })
		s.say(probe.Failure, "a")
		if st := s.status(); !strings.Contains(st.Error, "rejected") || st.ErrorSince.IsZero() || st.Failed != 0 {
			t.Errorf("the status is %+v", st)
		}
		s.say(probe.Failure, "b")
		if st := s.status(); st.Error != "" || !st.ErrorSince.IsZero() {
			t.Errorf("the status is %+v after a notice was accepted", st)
		}
	})
}

// A rejected notice is not repeated. The receiver may accept the end of its trouble.
func TestANoticeThatIsRejectedIsNotRepeated(t *testing.T) {
	in(t, "a b c d", func(s *scene) {
		s.spec.Resend = time.Minute
		s.apply()
		s.to.set(func(r *receiver) { r.rejects = "a" })
		s.say(probe.Failure, "a", "b")
		pass(time.Minute)
		if got := s.to.take(); !strings.HasSuffix(got, "b not_ready again") {
			t.Errorf("told: %s", got)
		}
		if st := s.status(); st.Dropped != 1 {
			t.Errorf("the status is %+v", st)
		}
		s.to.set(func(r *receiver) { r.rejects = "" })
		s.say(probe.Success, "a")
		s.expect("a ready ends")
	})
}

// A notifier that coalesces reports only the current state of subjects once its receiver is back.
func TestTransitionsAreCoalesced(t *testing.T) {
	in(t, "a b c d", func(s *scene) {
		s.spec.Coalesce = true
		s.apply()
		s.say(probe.Failure, "a")
		s.expect("a not_ready")
		s.to.set(func(r *receiver) { r.fails = errors.New("busy") })
		for range 5 {
			s.say(probe.Success, "a")
			s.say(probe.Failure, "a", "b")
			s.say(probe.Success, "b")
		}
		s.say(probe.Failure, "c")
		s.to.set(func(r *receiver) { r.fails = nil })
		pass(time.Minute)
		s.expect("c not_ready")
		s.say(probe.Success, "a", "c")
		if got := s.to.take(); len(got) != len("a ready ends, c ready ends") {
			t.Errorf("told: %s", got)
		}
		if st := s.status(); st.Pending != 0 || st.Lost != 0 || st.Firing != 0 {
			t.Errorf("the status is %+v", st)
		}
	})
}

// A target that is paused, or that fails because of another one, is not reported.
func TestWhatIsSuppressedIsNotTold(t *testing.T) {
	in(t, "db web", func(s *scene) {
		if _, err := s.engine.Change(engine.Change{Dependencies: map[string][]string{"web": {"db"}}}); err != nil {
			t.Fatal(err)
		}
		s.say(probe.Failure, "db")
		s.expect("db not_ready")
		s.say(probe.Failure, "web")
		s.expect("") // the group would be ready with it
		s.say(probe.Success, "web")
		s.say(probe.Failure, "web")
		s.expect("")
		s.say(probe.Success, "db")
		s.expect("db ready ends, web not_ready")
		s.say(probe.Success, "web")
		s.expect("web ready ends")

		s.engine.Admin().Pause("web", engine.Pause{Reason: probe.ReasonPaused, Since: time.Now()})
		s.say(probe.Failure, "web")
		s.say(probe.Success, "web")
		s.say(probe.Failure, "web")
		s.expect("")
		s.engine.Admin().Unpause("web")
		pass(4 * time.Second) // db may fail as well
		s.expect("web not_ready")
		s.engine.Admin().Pause("web", engine.Pause{Reason: probe.ReasonMaintenance, Since: time.Now()})
		s.say(probe.Success, "web")
		s.expect("")
		s.engine.Admin().Unpause("web")
		pass(2 * time.Second)
		s.expect("web ready ends")
	})
}

// When a pause, a maintenance or damping ends, the trouble of the target is reported with its own reason, not with that
// of the silence.
func TestWhatIsToldAfterASuppressionIsTheTroubleOfTheTarget(t *testing.T) {
	expectReason := func(s *scene, want probe.Reason, state string) {
		t.Helper()
		s.to.set(func(r *receiver) {
			if n := len(r.accepted); n != 1 || r.accepted[0].Reason != want || r.accepted[0].State != state {
				t.Errorf("told %+v, want one notice, %s: %s", r.accepted, state, want)
			}
			r.accepted = nil
		})
	}
	for _, reason := range []probe.Reason{probe.ReasonPaused, probe.ReasonMaintenance} {
		t.Run(string(reason), func(t *testing.T) {
			in(t, "web", func(s *scene) {
				s.spec.Selection.Groups = nil
				s.apply()
				s.engine.Admin().Pause("web", engine.Pause{Reason: reason, Since: time.Now()})
				s.say(probe.Failure, "web")
				s.engine.Admin().Unpause("web")
				pass(2 * time.Second)
				expectReason(s, probe.ReasonHTTPStatus, "not_ready")
				s.engine.Admin().Pause("web", engine.Pause{Reason: reason, Since: time.Now()})
				s.say(probe.Success, "web")
				s.engine.Admin().Unpause("web")
				pass(2 * time.Second)
				expectReason(s, "", "ready")
			})
		})
	}
	t.Run("damping", func(t *testing.T) {
		in(t, "web", func(s *scene) {
			s.spec.Selection.Groups = nil
			s.apply()
			if _, err := s.engine.Change(engine.Change{Dampings: map[string]probe.Damping{"web": {}}}); err != nil {
				t.Fatal(err)
			}
			for range 4 {
				s.say(probe.Failure, "web")
				s.say(probe.Success, "web")
			}
			s.say(probe.Failure, "web")
			s.to.take()
			pass(2 * time.Hour)
			expectReason(s, probe.ReasonHTTPStatus, "not_ready")
		})
	})
}

// A suppressed restart follows within a second: the suppression is not reported as a trouble.
func TestARestartThatIsBlockedBySuppressionIsNotTold(t *testing.T) {
	for _, reason := range []probe.Reason{probe.ReasonPaused, probe.ReasonMaintenance, probe.ReasonDependency, probe.ReasonDamped, probe.ReasonBudget} {
		t.Run(string(reason), func(t *testing.T) {
			in(t, "web", func(s *scene) {
				s.spec.Selection.Groups = nil
				s.apply()
				report := func(phase probe.Phase, why probe.Reason) {
					s.engine.Report(probe.Instance{Target: "web", ID: "1", Phase: phase, Since: time.Now(), Reason: why})
					pass(2 * time.Second)
				}
				s.set[probe.ID{Target: "web", Kind: probe.Readiness}] = probe.Probe{
					Rule: probe.Rule{Period: time.Second, FailureThreshold: 1}, Target: probe.Target{Name: "web"},
					Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Result{Outcome: probe.Success} }),
				}
				if _, err := s.engine.Change(engine.Change{Set: s.set}); err != nil {
					t.Fatal(err)
				}
				report(probe.Running, "")
				s.to.take()
				report(probe.Running, reason)
				if reason == probe.ReasonBudget {
					s.expect("web restart_blocked")
					pass(5 * time.Second)
				} else {
					s.expect("")
				}
				report(probe.Gone, probe.ReasonExited)
				s.expect("web exited")
			})
		})
	}
}

// A failing instance goes through several states of trouble: the receiver gets the first one, and the one that lasts.
// The end of the trouble is reported immediately.
func TestStatesOfATroubleThatFollowEachOtherAreToldOnce(t *testing.T) {
	in(t, "web", func(s *scene) {
		s.spec.Selection.Groups = nil
		s.apply()
		report := func(phase probe.Phase, why probe.Reason) {
			s.engine.Report(probe.Instance{Target: "web", ID: "1", Phase: phase, Since: time.Now(), Reason: why})
			pass(300 * time.Millisecond)
		}
		s.set[probe.ID{Target: "web", Kind: probe.Readiness}] = probe.Probe{
			Rule: probe.Rule{Period: time.Second, FailureThreshold: 1}, Target: probe.Target{Name: "web"},
			Handler: probe.HandlerFunc(func(_ context.Context, to probe.Target) probe.Result { return s.outcome(to.Name) }),
		}
		if _, err := s.engine.Change(engine.Change{Set: s.set}); err != nil {
			t.Fatal(err)
		}
		report(probe.Running, "")
		pass(2 * time.Second)
		s.to.take()
		for range 3 {
			report(probe.Running, probe.ReasonBudget)
			s.expect("web restart_blocked")
			report(probe.Gone, probe.ReasonExited)
			report(probe.Running, probe.ReasonBudget)
			report(probe.Gone, probe.ReasonExited)
			if st := s.status(); st.Held != 1 {
				t.Errorf("the status is %+v", st)
			}
			s.expect("")
			pass(5 * time.Second)
			s.expect("web exited")
			report(probe.Running, probe.ReasonBudget)
			report(probe.Running, "")
			pass(2 * time.Second)
			s.expect("web ready ends")
		}
	})
}

// A damped target is not reported, whether it fails or recovers, until its damping ends. Its group is: a damped member
// does not explain the group's failure.
func TestOfATargetThatIsDampedNobodyIsTold(t *testing.T) {
	tier.Slow(t)
	for name, stays := range map[string]bool{"it recovers": false, "it stays down": true} {
		t.Run(name, func(t *testing.T) {
			in(t, "db web", func(s *scene) {
				if _, err := s.engine.Change(engine.Change{Dampings: map[string]probe.Damping{"web": {}}}); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					s.say(probe.Failure, "web")
					s.say(probe.Success, "web")
				}
				s.expect("web not_ready, web ready ends, web not_ready, web ready ends")
				for range 20 {
					s.say(probe.Failure, "web")
					s.say(probe.Success, "web")
				}
				s.say(probe.Failure, "web")
				s.expect("")
				s.say(probe.Failure, "db")
				s.expectTogether("db not_ready", "all down")
				s.say(probe.Success, "db")
				s.expectTogether("db ready ends", "all ready ends")
				if !stays {
					s.say(probe.Success, "web")
				}
				pass(2 * time.Hour)
				if stays {
					s.expect("web not_ready")
				}
				s.expect("")
			})
		})
	}
}

// The next engine sends the notices that this one has not sent, and none twice.
func TestTheNextEngineGoesOn(t *testing.T) {
	in(t, "db web other", func(s *scene) {
		s.say(probe.Failure, "db")
		s.expect("db not_ready")
		s.to.set(func(r *receiver) { r.fails = errors.New("down") })
		s.say(probe.Failure, "web")
		s.say(probe.Success, "web")
		s.restart(func() {})
		s.say(probe.Failure, "web")
		s.to.set(func(r *receiver) { r.fails, r.hangs = nil, false })
		pass(time.Minute)
		s.expect("web not_ready, web ready ends, web not_ready")
		s.restart(func() {})
		s.expect("")
		s.restart(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.outcomes["db"], s.outcomes["web"] = probe.Success, probe.Success
		})
		if got := s.to.take(); len(got) != len("db ready ends, web ready ends") {
			t.Errorf("told: %s", got)
		}
	})
}

// The values are read one after another, while receivers accept notices. If an engine is killed after its cursor was
// saved, and before a notice that precedes the cursor, no trouble stays without an end.
func TestACursorIsNotSavedBeforeItsNotices(t *testing.T) {
	in(t, "db", func(s *scene) {
		s.values = valuesOf(s.notifiers)
		s.say(probe.Failure, "db")
		s.to.take()
		for key := range s.values {
			s.values[key], _ = valueOf(s.notifiers, key)
		}
		s.kill(func() { s.say(probe.Success, "db") })
		if got := s.to.take(); !strings.Contains(got, "db ready ends") {
			t.Errorf("notified: %s", got)
		}
	})
}

// The cursor is saved once the notices before it are, so that none of them is sent again.
func TestACursorIsSavedAfterItsNotices(t *testing.T) {
	in(t, "db", func(s *scene) {
		s.save("")
		before := s.lastTransition()
		s.say(probe.Failure, "db")
		s.expectCursorWaits(before)
	})
}

// A trouble that began again is reported, though the engine was killed before it saved the end of the previous one.
func TestATroubleAfterAnUnsavedEndIsTold(t *testing.T) {
	in(t, "db other", func(s *scene) {
		s.say(probe.Failure, "db")
		s.save("")
		before := s.lastTransition()
		s.say(probe.Success, "db")
		s.to.take()
		s.expectCursor("while the end is not saved", before)
		s.kill(func() { s.say(probe.Failure, "db") })
		if got := s.to.take(); !strings.HasSuffix(got, "db not_ready") {
			t.Errorf("notified: %s", got)
		}
	})
}

// A trouble that began and ended since values were saved leaves nothing for which a cursor waits, and nothing in memory:
// an engine without a state file never saves values.
func TestATroubleThatHasEndedLeavesNothingUnsaved(t *testing.T) {
	const names = "a b c d e f g h"
	in(t, names, func(s *scene) {
		for range 2 {
			s.say(probe.Failure, strings.Fields(names)...)
			s.say(probe.Success, strings.Fields(names)...)
		}
		clear(s.changed)
		s.spec.Labels = map[string]string{"of": "another"}
		s.apply() // marks all keys
		synctest.Wait()
		for key := range s.changed {
			if strings.HasPrefix(key, "told/") {
				t.Errorf("%s is not saved", key)
			}
		}
		s.expectCursor("after the end", s.lastTransition())
	})
}

// The count of lost transitions waits like the cursor.
func TestAllOfACursorWaits(t *testing.T) {
	in(t, "db", func(s *scene) {
		s.say(probe.Failure, "db")
		s.save("")
		before := s.saveCursor()
		s.to.set(func(r *receiver) { r.fails = errors.New("down") })
		for range maxTransitions {
			s.say(probe.Success, "db")
			s.say(probe.Failure, "db")
		}
		s.say(probe.Success, "db")
		s.to.set(func(r *receiver) { r.fails = nil })
		pass(time.Minute)
		if got := s.saveCursor(); got.After != before.After || got.Lost != before.Lost {
			t.Errorf("before the notices are saved: %+v, want %+v", got, before)
		}
		s.save("told/")
		if got := s.saveCursor(); got.After <= before.After || got.Lost == 0 {
			t.Errorf("once they are: %+v, was %+v", got, before)
		}
	})
}

// A state file saves the notices of a write before the cursor, however many subjects have changed.
func TestACursorIsSavedTogetherWithItsNotices(t *testing.T) {
	in(t, "a b c other", func(s *scene) {
		for _, outcome := range []probe.Outcome{probe.Failure, probe.Success, probe.Failure} {
			s.say(outcome, "a", "b", "c")
			s.save("")
			saved := s.values[cursorKey]
			if now, _ := valueOf(s.notifiers, cursorKey); string(now) != string(saved) {
				t.Errorf("the cursor is saved as %s, and is %s", saved, now)
			}
		}
	})
}

// Notices that are accepted while a state file is written do not hold back the cursor of earlier ones: in a storm, each
// write has some.
func TestACursorWaitsOnlyForLaterNotices(t *testing.T) {
	in(t, "a b c d other", func(s *scene) {
		for _, name := range []string{"a", "b", "c"} {
			s.say(probe.Failure, name)
			before := s.lastTransition()
			s.save("told/")
			s.say(probe.Failure, "d")
			s.expectCursor("while a notice of d is not saved", before)
			s.save("told/")
			s.say(probe.Success, "d")
		}
	})
}

// A cursor also waits for the notices of another engine, since this engine may send their ends.
func TestACursorWaitsForNoticesOfAnotherEngine(t *testing.T) {
	in(t, "db web other", func(s *scene) {
		s.say(probe.Failure, "db")
		told := s.notifiers.Notified("db")
		s.isOthers.Store(true)
		s.say(probe.Success, "db")
		s.save("")
		before := s.lastTransition()
		s.expectCursor("at first", before)
		if err := s.notifiers.SetNotified("db", told); err != nil {
			t.Fatal(err)
		}
		s.say(probe.Failure, "web")
		s.expectCursorWaits(before)
		before = s.lastTransition()
		if err := s.notifiers.SetNotified("db", nil); err != nil {
			t.Fatal(err)
		}
		s.say(probe.Success, "web")
		s.expectCursorWaits(before)
	})
}

// A reload replaces a receiver whose notices are not saved: its cursor still waits for them.
func TestACursorWaitsForNoticesBeforeAReload(t *testing.T) {
	in(t, "db", func(s *scene) {
		s.save("")
		before := s.lastTransition()
		s.say(probe.Failure, "db")
		s.to.take()
		s.spec.Labels = map[string]string{"of": "another"}
		s.apply()
		s.expectCursor("after the reload", before)
		pass(time.Second)
		s.expectTogether("db not_ready", "all down") // with other labels
		s.expectCursor("after another notice of db", before)
		s.kill(func() { s.say(probe.Success, "db") })
		if got := s.to.take(); !strings.Contains(got, "db ready ends") {
			t.Errorf("notified: %s", got)
		}
		s.save("")
		s.expectCursor("once everything is saved", s.lastTransition())
	})
}

// An engine that has the notices of an earlier one, but no history, reports troubles that have ended.
func TestWhatHasEndedMeanwhileIsTold(t *testing.T) {
	in(t, "db web other", func(s *scene) {
		s.say(probe.Failure, "db", "web")
		s.to.take()
		s.stop()
		s.values = valuesOf(s.notifiers)
		delete(s.set, probe.ID{Target: "db", Kind: probe.Readiness})
		s.outcomes["web"] = probe.Success
		s.start(nil, nil)
		pass(3 * time.Second)
		if got := s.to.take(); got != "db removed ends, web ready ends" && got != "web ready ends, db removed ends" {
			t.Errorf("told: %s", got)
		}
	})
}

func TestAlertsAreRepeatedWhileTheyLast(t *testing.T) {
	in(t, "web other", func(s *scene) {
		s.spec.Resend = time.Minute
		s.apply()
		s.say(probe.Failure, "web")
		s.expect("web not_ready")
		pass(3*time.Minute + time.Second)
		s.expect("web not_ready again, web not_ready again, web not_ready again")
		s.engine.Admin().Pause("web", engine.Pause{Reason: probe.ReasonPaused, Since: time.Now()})
		pass(time.Minute)
		s.expect("web not_ready again")
		s.engine.Admin().Unpause("web")
		s.say(probe.Success, "web")
		pass(5 * time.Minute)
		s.expect("web ready ends")
	})
}

// A receiver that hangs, with thousands of pending transitions, delays no attempt.
func TestNoAttemptIsLateBecauseOfAReceiver(t *testing.T) {
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint("web-", i))
	}
	attempts := map[bool][]time.Duration{}
	for _, hangs := range []bool{false, true} {
		in(t, strings.Join(names, " "), func(s *scene) {
			if s.to.set(func(r *receiver) { r.hangs = hangs }); !hangs {
				s.spec.Selection = notify.Selection{}
				s.apply()
			}
			s.mu.Lock()
			s.attempts = nil
			s.mu.Unlock()
			began := time.Now()
			for range 5 {
				s.say(probe.Failure, names...)
				s.say(probe.Success, names...)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, at := range s.attempts {
				attempts[hangs] = append(attempts[hangs], at.Sub(began))
			}
		})
	}
	if len(attempts[true]) < 2000 || !slices.Equal(attempts[true], attempts[false]) {
		t.Errorf("%d attempts with a receiver that hangs, %d without are at other times", len(attempts[true]), len(attempts[false]))
	}
}

func TestANotifierWhoseFilesHaveChangedIsReplacedAndItsSenderClosed(t *testing.T) {
	in(t, "web", func(s *scene) {
		before := s.to
		s.to = &receiver{}
		s.apply() // unchanged
		s.say(probe.Failure, "web")
		if got := before.take(); got != "web not_ready, all down" || before.closed != 0 {
			t.Errorf("told: %s; the sender was closed %d times", got, before.closed)
		}
		s.spec.Files[0]++ // a certificate was renewed
		s.apply()
		s.say(probe.Success, "web")
		s.expectTogether("web ready ends", "all ready ends")
		if got := before.take(); got != "" || before.closed != 1 {
			t.Errorf("afterwards told: %s; the sender was closed %d times", got, before.closed)
		}
	})
}

// Of the engines that share targets, one sends the notices of each target. An engine that has, or has had, the target as
// well sends nothing: neither that it is in trouble, nor that the trouble has ended, nor that the target was removed.
func TestOnlyTheOwnerTells(t *testing.T) {
	in(t, "db web", func(s *scene) {
		s.say(probe.Failure, "db")
		s.expect("db not_ready")
		s.isOthers.Store(true)
		s.say(probe.Success, "db")
		s.say(probe.Failure, "web")
		s.expect("")
		s.isOthers.Store(false)
		pass(2 * time.Second)
		if got := s.to.take(); got != "db ready ends, web not_ready" && got != "web not_ready, db ready ends" {
			t.Errorf("told once it may: %s", got)
		}

		s.isOthers.Store(true)
		if _, err := s.engine.Change(engine.Change{Remove: []probe.ID{{Target: "web", Kind: probe.Readiness}}}); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		s.isOthers.Store(false)
		pass(5 * time.Second)
		s.expect("")
		if st := s.status(); st.Firing != 0 {
			t.Errorf("%d subjects are said to be in trouble", st.Firing)
		}
	})
}

// An engine that has lost its lease does not know whether another one sends notices. It repeats troubles that last, but
// not those that have ended according to its own verdicts: the next owner has reported their end.
func TestATroubleThatHasEndedIsNotRepeatedWithoutALease(t *testing.T) {
	in(t, "db web", func(s *scene) {
		s.spec.Selection.Groups, s.spec.Resend = nil, time.Minute
		s.apply()
		s.say(probe.Failure, "db", "web")
		_ = s.to.take()
		s.isOthers.Store(true)
		s.say(probe.Success, "web")
		pass(150 * time.Second)
		s.expect("db not_ready again, db not_ready again")
		s.isOthers.Store(false)
		pass(3 * time.Second)
		s.expect("web ready ends")
	})
}

// A trouble of 20 seconds or more that began and ended while no engine could notify is reported later, with its end. So
// is a trouble that lasts until an engine can notify. A shorter trouble, and one about which the engine was in doubt,
// are not reported.
func TestATroubleThatNoEngineCouldTellIsToldLater(t *testing.T) {
	for _, coalesce := range []bool{false, true} {
		in(t, "db web app api", func(s *scene) {
			s.spec.Selection.Groups, s.spec.Coalesce = nil, coalesce
			s.apply()
			s.isOthers.Store(true)
			s.doubted.Store("api")
			s.say(probe.Failure, "db", "web", "app", "api")
			s.say(probe.Success, "app")
			pass(25 * time.Second)
			s.say(probe.Success, "web", "api")
			s.doubted.Store("")
			pass(time.Minute)
			s.expect("")
			s.isOthers.Store(false)
			pass(2 * time.Second)
			s.expectTogether("db not_ready", "web not_ready", "web ready ends")
			s.say(probe.Success, "db")
			s.expect("db ready ends")
			pass(time.Minute)
			s.expect("")
		})
	}
}

// Another engine has reported it, or has had the target meanwhile.
func TestATroubleThatAnotherEngineCouldTellIsNotToldLater(t *testing.T) {
	in(t, "db web", func(s *scene) {
		s.spec.Selection.Groups = nil
		s.apply()
		s.isOthers.Store(true)
		s.say(probe.Failure, "db", "web")
		pass(30 * time.Second)
		s.say(probe.Success, "db")
		if err := s.notifiers.SetNotified("db", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.engine.Change(engine.Change{Remove: []probe.ID{{Target: "web", Kind: probe.Readiness}}}); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		s.outcomes["web"] = probe.Success
		if _, err := s.engine.Change(engine.Change{Set: s.set}); err != nil {
			t.Fatal(err)
		}
		s.isOthers.Store(false)
		pass(5 * time.Second)
		s.expect("")
	})
}

func TestAGroupThatIsReadyIsNotRepeatedWithoutALease(t *testing.T) {
	in(t, "db", func(s *scene) {
		s.spec.Selection, s.spec.Resend = notify.Selection{Groups: []string{"*"}}, time.Minute
		members, err := probe.NewSelector([]string{"db"}, nil)
		if err == nil {
			err = s.groups.Apply(map[string]group.Rule{"dbs": {Members: members}})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.apply()
		s.say(probe.Failure, "db")
		s.expect("dbs down")
		s.notifier.Store(int32(notify.NoEngine))
		pass(90 * time.Second)
		s.expect("dbs down again")
		s.say(probe.Success, "db")
		pass(3 * time.Minute)
		s.expect("")
		s.notifier.Store(int32(notify.ThisEngine))
		pass(3 * time.Second)
		s.expect("dbs ready ends")
	})
}

// Of the engines with the same groups, one sends the notices of each group: the next engine reports groups that are in
// trouble, and the previous one does not report the end.
func TestOnlyOneEngineTellsAboutAGroup(t *testing.T) {
	in(t, "db", func(s *scene) {
		s.spec.Selection = notify.Selection{Groups: []string{"*"}}
		s.apply()
		become := func(notifier notify.Notifier, want string, firing int) {
			t.Helper()
			s.notifier.Store(int32(notifier))
			pass(3 * time.Second)
			s.expect(want)
			if st := s.status(); st.Firing != firing {
				t.Errorf("%d subjects are said to be in trouble, want %d", st.Firing, firing)
			}
		}
		become(notify.OtherEngine, "", 0)
		s.say(probe.Failure, "db")
		s.expect("")
		become(notify.ThisEngine, "all down", 1)
		become(notify.NoEngine, "", 1)
		become(notify.ThisEngine, "", 1)
		become(notify.NoEngine, "", 1)
		s.say(probe.Success, "db")
		s.expect("")
		become(notify.ThisEngine, "all ready ends", 0)
		s.say(probe.Failure, "db")
		s.expect("all down")
		become(notify.OtherEngine, "", 0)
		s.say(probe.Success, "db")
		become(notify.ThisEngine, "", 0)
	})
}

// After their start, engines that share targets need a moment to find the owner of a target.
func TestWhatWasToldHoldsUntilItIsKnownWhoTells(t *testing.T) {
	in(t, "db web", func(s *scene) {
		s.say(probe.Failure, "db")
		s.expect("db not_ready")
		s.stop()
		s.values = valuesOf(s.notifiers)
		all := s.set
		s.set = probe.Set{}
		s.isOthers.Store(true)
		s.isConfigured.Store(true)
		s.start(nil, nil)
		pass(5 * time.Second)
		if _, err := s.engine.Change(engine.Change{Set: all}); err != nil {
			t.Fatal(err)
		}
		s.isOthers.Store(false)
		s.isConfigured.Store(false)
		pass(5 * time.Second)
		s.expect("")
		s.say(probe.Success, "db")
		s.expect("db ready ends")
	})
}

func TestARestartUnderWayIsNotToldAgain(t *testing.T) {
	for _, reason := range []probe.Reason{probe.ReasonEnding, probe.ReasonOperatorRestart} {
		in(t, "web", func(s *scene) {
			s.set[probe.ID{Target: "app", Kind: probe.Readiness}] = probe.Probe{
				Rule:    probe.Rule{Period: time.Second, FailureThreshold: 1},
				Handler: probe.HandlerFunc(func(_ context.Context, to probe.Target) probe.Result { return s.outcome(to.Name) }),
			}
			s.set[probe.ID{Target: "app", Kind: probe.Liveness}] = probe.Probe{
				Rule:    probe.Rule{Period: time.Second, FailureThreshold: 1},
				Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return s.outcome("liveness of app") }),
			}
			s.outcomes["app"], s.outcomes["liveness of app"] = probe.Success, probe.Success // the first attempts may be made immediately
			if _, err := s.engine.Apply(s.set); err != nil {
				t.Fatal(err)
			}
			instance := probe.Instance{Target: "app", ID: "1", Phase: probe.Running, Managed: true, Since: time.Now()}
			s.engine.Report(instance)
			s.say(probe.Success, "app")
			s.say(probe.Failure, "app")
			s.expect("app not_ready")
			instance.Reason = reason
			s.engine.Report(instance)
			s.say(probe.Failure, "liveness of app")
			if st, _ := s.engine.Target("app"); st.State != probe.StateFailing {
				t.Errorf("the target is %v", st.State)
			}
			s.expect("")
			s.say(probe.Success, "liveness of app")
			instance = probe.Instance{Target: "app", ID: "2", Phase: probe.Running, Managed: true, Since: time.Now()}
			s.engine.Report(instance)
			pass(5 * time.Second)
			s.expect("") // it is not ready, as before
			s.say(probe.Success, "app")
			s.expect("app ready ends")
		})
	}
}

// A reload corrects probes that have failed. Their failures stay in effect until attempts have an outcome, and are not
// reported again: neither that the restart waits for an outcome, nor that it still does when the probe has passed.
func TestACorrectionIsNoTrouble(t *testing.T) {
	in(t, "web", func(s *scene) {
		s.spec.Selection.Groups = nil
		s.apply()
		id := probe.ID{Target: "app", Kind: probe.Liveness}
		use := func(revision, says string) {
			s.set[id] = probe.Probe{
				Rule: probe.Rule{Period: 10 * time.Second, FailureThreshold: 1}, HandlerName: "test", Revision: revision,
				Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return s.outcome(says) }),
			}
			if _, err := s.engine.Apply(s.set); err != nil {
				t.Fatal(err)
			}
		}
		report := func(why probe.Reason, detail string) {
			s.engine.Report(probe.Instance{Target: "app", ID: "1", Phase: probe.Running, Since: time.Unix(1, 0), Reason: why, Detail: detail})
			pass(1500 * time.Millisecond)
		}
		s.outcomes["right"], s.outcomes["wrong"] = probe.Success, probe.Failure
		use("1", "right")
		report("", "")
		pass(time.Minute)
		use("2", "wrong")
		pass(20 * time.Second)
		s.expect("app failing")
		use("3", "right")
		report(probe.ReasonReload, "the reload changed the probe, which has had no outcome since")
		s.expect("")
		report(probe.ReasonReload, "still")
		pass(20 * time.Second) // the probe passes
		s.expect("")
		report("", "")
		pass(20 * time.Second)
		s.expect("app ready ends")

		s.doubted.Store("app") // so that the receiver is not notified
		use("4", "wrong")
		pass(20 * time.Second)
		report(probe.ReasonReload, "wrong")
		use("5", "right")
		s.doubted.Store("")
		pass(2 * time.Second)
		report(probe.ReasonReload, "the reload changed the probe, which has had no outcome since")
		s.expect("")
		pass(20 * time.Second)
		report("", "")
		s.expect("")

		use("6", "wrong") // does not correct the probe
		pass(20 * time.Second)
		s.expect("app failing")
		use("7", "wrong")
		report(probe.ReasonReload, "no outcome")
		s.expect("")
		pass(20 * time.Second)
		s.expect("app restart_blocked")
	})
}
