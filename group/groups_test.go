package group_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// answer is a handler whose outcome a test sets.
type answer struct {
	mu      sync.Mutex
	outcome probe.Outcome
}

func (a *answer) Probe(context.Context, probe.Target) probe.Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	return probe.Result{Outcome: a.outcome}
}

func (a *answer) say(o probe.Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outcome = o
}

// stage is an engine with groups, in a bubble.
type stage struct {
	t       *testing.T
	engine  *engine.Engine
	others  *engine.Engine // shows targets of others, and never runs
	doubts  *doubting
	groups  *group.Groups
	set     probe.Set
	answers map[string]*answer
	log     *testsync.Buffer // without times
	moves   int

	reserved map[string][]string // by other engines: targets by group
}

func play(t *testing.T, f func(s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, set: probe.Set{}, answers: map[string]*answer{}, log: &testsync.Buffer{}}
		s.engine = engine.New(engine.Config{})
		noTime := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
		s.others = engine.New(engine.Config{NoIsolationCheck: true})
		s.doubts = &doubting{Union: engine.NewUnion(s.engine, s.others)}
		s.groups = group.New(group.Config{Engine: s.doubts, Reserved: func(name string) []string { return s.reserved[name] }, Logger: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{ReplaceAttr: noTime}))})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = s.engine.Run(ctx) })
		running.Go(func() { _ = s.groups.Run(ctx) })
		defer running.Wait()
		defer cancel()
		f(s)
	})
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// target adds a target whose probe has an outcome; it fails and passes at the first one.
func (s *stage) target(name string, o probe.Outcome, labels map[string]string) {
	s.answers[name] = &answer{outcome: o}
	s.set[probe.ID{Target: name, Kind: probe.Readiness}] = probe.Probe{
		Rule: probe.Rule{FailureThreshold: 1, Period: time.Second}, Target: probe.Target{Labels: labels}, Handler: s.answers[name],
	}
}

func (s *stage) apply() {
	s.t.Helper()
	if _, err := s.engine.Apply(s.set); err != nil {
		s.t.Fatal(err)
	}
	for id := range s.set {
		s.engine.Report(probe.Instance{Target: id.Target, ID: "static", Phase: probe.Running, Since: time.Now()})
	}
	synctest.Wait()
}

func (s *stage) rules(rules map[string]group.Rule) {
	s.t.Helper()
	if err := s.groups.Apply(rules); err != nil {
		s.t.Fatal(err)
	}
}

// is checks a group: "ready 3 1 0" has the state, and how many are ready, down, undecided.
func (s *stage) is(name, want string) {
	s.t.Helper()
	v := s.groups.Get(name).View()
	got := fmt.Sprintf("%v %d %d %d", v.State, v.Counts[probe.GatewayReady], v.Counts[probe.GatewayDown], v.Counts[probe.GatewayUndecided])
	if got != want {
		s.t.Errorf("group %s is %s, want %s", name, got, want)
	}
}

func rule(t testing.TB, min string, names, labels []string) group.Rule {
	t.Helper()
	selector, err := probe.NewSelector(names, labels)
	if err != nil {
		t.Fatal(err)
	}
	r := group.Rule{Members: selector}
	if err := r.MinReady.UnmarshalText([]byte(min)); err != nil {
		t.Fatal(err)
	}
	return r
}

// A group whose members are stopped since they were to be has no outage; one of which another member fails has.
func TestAPlannedStopIsNoOutageOfAGroup(t *testing.T) {
	for _, fails := range []bool{false, true} {
		play(t, func(s *stage) {
			s.target("web-0", probe.Success, nil)
			s.target("web-1", probe.Success, nil)
			s.apply()
			s.rules(map[string]group.Rule{"web": rule(t, "1", []string{"web-*"}, nil)})
			pass(2 * time.Second)
			if fails {
				s.answers["web-1"].say(probe.Failure)
				pass(2 * time.Second)
			}
			for name := range s.answers {
				if name == "web-0" || !fails {
					s.engine.Report(probe.Instance{Target: name, ID: "static", Phase: probe.Ended, Reason: probe.ReasonShutdown, Managed: true})
				}
			}
			pass(2 * time.Second)
			want := "level=INFO msg=\"group is not ready: its members are stopped\" group=web ready=0 members=2 min_ready=1\n"
			if fails {
				want = "level=WARN msg=\"group is not ready\" group=web ready=0 members=2 min_ready=1 down=\"web-0, web-1\"\n"
			}
			if log := s.log.Take(); log != want {
				t.Errorf("the log is\n%s\nwant\n%s", log, want)
			}
		})
	}
}

// A group that needs more members than it has lacks them, and nobody has stopped any.
func TestAGroupThatNeedsMoreMembersIsAWarning(t *testing.T) {
	play(t, func(s *stage) {
		s.target("web-0", probe.Success, nil)
		s.target("web-1", probe.Success, nil)
		s.apply()
		for _, min := range []string{"1", "3"} {
			s.rules(map[string]group.Rule{"web": rule(t, min, []string{"web-*"}, nil)})
			pass(2 * time.Second)
		}
		if log, want := s.log.Take(), "level=WARN msg=\"group is not ready\" group=web ready=2 members=2 min_ready=3 down=\"\"\n"; log != want {
			t.Errorf("the log is\n%s\nwant\n%s", log, want)
		}
	})
}

func TestAGroupFollowsItsMembers(t *testing.T) {
	play(t, func(s *stage) {
		for i := range 4 {
			s.target(fmt.Sprintf("web-%d", i), probe.Success, nil)
		}
		s.target("db", probe.Success, nil)
		s.apply()
		s.rules(map[string]group.Rule{"web": rule(t, "2", []string{"web-*"}, nil)})
		pass(2 * time.Second)
		s.is("web", "ready 4 0 0")
		if log := s.log.Take(); log != "" {
			t.Errorf("a group that is ready at first is logged: %s", log)
		}
		s.answers["web-0"].say(probe.Failure)
		s.answers["web-3"].say(probe.Failure)
		pass(2 * time.Second)
		s.is("web", "ready 2 2 0")
		s.answers["web-1"].say(probe.Failure)
		pass(2 * time.Second)
		s.is("web", "down 1 3 0")
		if log, want := s.log.Take(), "level=WARN msg=\"group is not ready\" group=web ready=1 members=4 min_ready=2 down=\"web-0, web-1, web-3\"\n"; log != want {
			t.Errorf("the log is\n%s\nwant\n%s", log, want)
		}
		s.answers["web-3"].say(probe.Success)
		pass(2 * time.Second)
		s.is("web", "ready 2 2 0")
		if log, want := s.log.Take(), "level=INFO msg=\"group is ready again\" group=web ready=2 members=4 min_ready=2\n"; log != want {
			t.Errorf("the log is\n%s\nwant\n%s", log, want)
		}
	})
}

// Fail static: what is not known is not down.
func TestUndecidedMembersAreNotDown(t *testing.T) {
	play(t, func(s *stage) {
		s.target("a", probe.Unknown, nil)
		s.target("b", probe.Unknown, nil)
		s.apply()
		s.rules(map[string]group.Rule{"all": rule(t, "1", nil, nil), "named": rule(t, "2", []string{"a", "later"}, nil)})
		pass(time.Minute)
		s.is("all", "undecided 0 0 2")
		s.is("named", "undecided 0 0 2")
		if v := s.groups.Get("all").View(); v.Last != probe.GatewayUndecided || v.Decided() || !v.Since.IsZero() {
			t.Errorf("the view is %+v", v)
		}
		s.answers["a"].say(probe.Failure)
		pass(2 * time.Second)
		s.is("all", "undecided 0 1 1")
		s.is("named", "down 0 1 1") // not ready whatever becomes of the other one
		s.answers["a"].say(probe.Success)
		pass(2 * time.Second)
		s.is("all", "ready 1 0 1")
		s.is("named", "undecided 1 0 1")
		if v := s.groups.Get("named").View(); v.Last != probe.GatewayDown {
			t.Errorf("the last decision is %v, want down", v.Last)
		}
		s.log.Take()
		s.target("later", probe.Success, nil)
		s.apply()
		pass(2 * time.Second)
		s.is("named", "ready 2 0 0")
		if log := s.log.Take(); !strings.Contains(log, `"group is ready again" group=named`) {
			t.Errorf("the log is %s", log)
		}
	})
}

// A target that has moved is not known: its group is neither down nor logged.
func TestAGroupWhoseMembersMoveKeepsItsLastDecision(t *testing.T) {
	play(t, func(s *stage) {
		s.target("a", probe.Success, nil)
		s.rules(map[string]group.Rule{"g": rule(t, "1", []string{"a"}, nil)})
		s.apply()
		pass(2 * time.Second)
		since := s.groups.Get("g").View().Since
		id := probe.ID{Target: "a", Kind: probe.Readiness}
		p := s.set[id]
		p.Target.Address = "10.0.0.9"
		s.set[id] = p
		s.answers["a"].say(probe.Unknown)
		s.apply()
		pass(5 * time.Second)
		s.is("g", "undecided 0 0 1")
		if v := s.groups.Get("g").View(); v.Last != probe.GatewayReady || !v.Since.Equal(since) || v.Member("a").Address != "10.0.0.9" {
			t.Errorf("the view is %+v", v)
		}
		if log := s.log.Take(); log != "" {
			t.Errorf("the log is %s", log)
		}
	})
}

func TestAReloadKeepsGroupsAndIsOneChange(t *testing.T) {
	play(t, func(s *stage) {
		for i := range 4 {
			s.target(fmt.Sprintf("old-%d", i), probe.Success, map[string]string{"team": "shop"})
		}
		s.apply()
		s.rules(map[string]group.Rule{"shop": rule(t, "100%", nil, []string{"team=shop"}), "gone": rule(t, "1", nil, nil)})
		pass(2 * time.Second)
		shop, gone := s.groups.Get("shop"), s.groups.Get("gone")
		before := shop.View()
		release := s.groups.Hold()
		s.set = probe.Set{}
		for i := range 2 {
			s.target(fmt.Sprintf("new-%d", i), probe.Success, map[string]string{"team": "shop"})
		}
		s.apply()
		pass(2 * time.Second)
		s.rules(map[string]group.Rule{"shop": rule(t, "2", nil, []string{"team=shop"})})
		if shop.View() != before {
			t.Error("a view was published during the change")
		}
		release()
		release()
		s.is("shop", "ready 2 0 0")
		after := shop.View()
		if s.groups.Get("shop") != shop || !after.Since.Equal(before.Since) || after.Version != before.Version+1 {
			t.Errorf("the view was %+v and is %+v", before, after)
		}
		if !gone.View().Removed || s.groups.Get("gone") != nil {
			t.Error("the removed group is still there")
		}
		if log := s.log.Take(); log != "" {
			t.Errorf("the log is %s", log)
		}
	})
}

func TestNextWaitsForAnotherVersion(t *testing.T) {
	play(t, func(s *stage) {
		s.target("a", probe.Success, nil)
		s.apply()
		s.rules(map[string]group.Rule{"g": rule(t, "1", nil, nil)})
		pass(2 * time.Second)
		g := s.groups.Get("g")
		for _, other := range []uint64{0, 7, g.View().Version - 1, g.View().Version + 1} {
			if v, err := g.Next(s.t.Context(), other); err != nil || v != g.View() {
				t.Errorf("with version %d Next returns %v, %v", other, v, err)
			}
		}
		begun := time.Now()
		time.AfterFunc(10*time.Second, func() { s.answers["a"].say(probe.Failure) })
		v, err := g.Next(s.t.Context(), g.View().Version)
		if err != nil || v.State != probe.GatewayDown || time.Since(begun) < 10*time.Second {
			t.Errorf("Next returned %+v, %v after %v", v, err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		defer cancel()
		if _, err := g.Next(ctx, v.Version); err != context.DeadlineExceeded {
			t.Errorf("nothing has changed, and Next returned %v", err)
		}
		go func() { _ = s.groups.Apply(nil) }()
		if v, err = g.Next(s.t.Context(), v.Version); err != nil || !v.Removed {
			t.Errorf("the last view is %+v, %v", v, err)
		}
		synctest.Wait()
		s.rules(map[string]group.Rule{"g": rule(t, "1", nil, nil)})
		s.is("g", "down 0 1 0")
		s.answers["a"].say(probe.Success)
		pass(2 * time.Second)
		s.is("g", "ready 1 0 0")
	})
}

func TestInvalidGroupsAreRefused(t *testing.T) {
	groups := group.New(group.Config{Engine: engine.New(engine.Config{})})
	for name, want := range map[string]string{
		"": "must not be empty", "a\nb": "control characters", strings.Repeat("g", 64): "64 bytes long; at most 63 are allowed",
	} {
		if err := groups.Apply(map[string]group.Rule{"ok": {}, name: {}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the name %q gives the error %v", name, err)
		}
	}
	many := map[string]group.Rule{}
	for i := range probe.MaxGroups + 1 {
		many[fmt.Sprint(i)] = group.Rule{}
	}
	if err := groups.Apply(many); err == nil || len(groups.Views()) != 0 {
		t.Errorf("the error is %v, and there are %d groups", err, len(groups.Views()))
	}
}

// Whatever happens, each group is what its rule makes of the engine's targets.
func TestGroupsEqualWhatTheirRulesMakeOfTheTargets(t *testing.T) {
	for seed := range uint64(15) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			play(t, func(s *stage) {
				r := rand.New(rand.NewPCG(seed, 0))
				rules := map[string]group.Rule{}
				for range 150 {
					randomStep(s, r, rules)
					if r.IntN(3) > 0 {
						pass(time.Duration(r.IntN(1500)) * time.Millisecond)
					}
					if r.IntN(2) == 0 {
						s.rules(rules) // also follows the engine
					} else {
						synctest.Wait()
					}
					compare(s, rules)
				}
			})
		})
	}
}

func randomStep(s *stage, r *rand.Rand, rules map[string]group.Rule) {
	target, name := fmt.Sprintf("t%d", r.IntN(8)), fmt.Sprintf("g%d", r.IntN(4))
	switch r.IntN(6) {
	case 0:
		s.target(target, probe.Outcome(r.IntN(4)), map[string]string{"color": []string{"red", "blue"}[r.IntN(2)]})
		s.apply()
	case 1:
		delete(s.set, probe.ID{Target: target, Kind: probe.Readiness})
		s.apply()
	case 2:
		delete(rules, name)
	case 3:
		rules[name] = rule(s.t, []string{"1", "2", "50%", "100%"}[r.IntN(4)],
			[][]string{nil, {"t*"}, {"t1", "t2", "t3"}, {"t1", "t[4]", "?7"}}[r.IntN(4)], [][]string{nil, {"color=red"}, {"color!=red"}}[r.IntN(3)])
	default:
		if a := s.answers[target]; a != nil {
			a.say(probe.Outcome(r.IntN(4)))
		}
	}
	s.rules(rules)
}

// compare compares the groups with a model of them.
func compare(s *stage, rules map[string]group.Rule) {
	s.t.Helper()
	if n := len(s.groups.Views()); n != len(rules) {
		s.t.Fatalf("there are %d groups, want %d", n, len(rules))
	}
	for name, rule := range rules {
		want := map[string]probe.GatewayState{}
		if !rule.Members.HasLabels() {
			for target := range rule.Members.Names() {
				want[target] = probe.GatewayUndecided
			}
		}
		for st := range s.engine.Select(context.Background(), engine.Filter{}) {
			switch {
			case !rule.Members.Matches(st.Target, st.Labels):
			default:
				want[st.Target] = st.Gateway
			}
		}
		v := s.groups.Get(name).View()
		got, counts, last := map[string]probe.GatewayState{}, group.Counts{}, ""
		for m := range v.Members() {
			if m.Target <= last {
				s.t.Fatalf("group %s: %s comes after %s", name, m.Target, last)
			}
			got[m.Target], last = m.State, m.Target
			counts[m.State]++
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || counts != v.Counts {
			s.t.Fatalf("group %s has the members %v and counts %v, want %v", name, got, v.Counts, want)
		}
	}
}
