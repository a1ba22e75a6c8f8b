package group_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// holding returns a rule that withholds restarts.
func holding(t *testing.T, min string, names ...string) group.Rule {
	r := rule(t, min, names, nil)
	r.HoldRestarts = true
	return r
}

// replace reports that another instance of a target runs.
func (s *stage) replace(target, id string) {
	s.engine.Report(probe.Instance{Target: target, ID: id, Phase: probe.Running, Since: time.Now()})
	pass(2 * time.Second)
}

// reserves tries to reserve the restart of the instance "static" of each target, and returns what withholds them.
func (s *stage) reserves(targets ...string) string {
	var by []string
	for _, target := range targets {
		by = append(by, s.groups.Acquire(target, "static", false))
	}
	return strings.Join(by, ",")
}

func playThree(t *testing.T, f func(s *stage)) {
	play(t, func(s *stage) {
		for _, name := range []string{"a", "b", "c"} {
			s.target(name, probe.Success, nil)
		}
		s.apply()
		s.rules(map[string]group.Rule{"web": holding(t, "2", "*")})
		pass(5 * time.Second)
		f(s)
	})
}

func TestARestartIsReservedUntilAnotherInstanceIsReady(t *testing.T) {
	playThree(t, func(s *stage) {
		if got := s.reserves("a", "b", "a", "c"); got != ",web,,web" {
			t.Fatalf("withheld by %q", got)
		}
		pass(2 * time.Second)
		if v := s.groups.Get("web").View(); v.RestartsWithheld != 2 {
			t.Errorf("%d restarts are withheld", v.RestartsWithheld)
		}
		s.answers["a"].say(probe.Failure)
		s.replace("a", "a-1")
		if got := s.reserves("b"); got != "web" {
			t.Errorf("withheld by %q before the next instance is ready", got)
		}
		s.answers["a"].say(probe.Success)
		pass(2 * time.Second)
		if got := s.reserves("b", "c"); got != ",web" {
			t.Errorf("withheld by %q once it is ready", got)
		}
	})
}

// An instance that was not terminated goes on, and counts again.
func TestARestartThatWasGivenUpIsReleased(t *testing.T) {
	playThree(t, func(s *stage) {
		s.reserves("a", "b")
		s.groups.Release("a")
		if got := s.reserves("b", "c"); got != ",web" {
			t.Errorf("withheld by %q", got)
		}
		s.groups.Release("c")
		pass(2 * time.Second)
		if v := s.groups.Get("web").View(); v.RestartsWithheld != 0 {
			t.Errorf("%d restarts are withheld", v.RestartsWithheld)
		}
	})
}

func TestAForcedRestartCounts(t *testing.T) {
	playThree(t, func(s *stage) {
		s.reserves("a")
		if by := s.groups.Acquire("b", "static", true); by != "web" {
			t.Errorf("withheld by %q", by)
		}
		s.replace("a", "a-1")
		if got := s.reserves("c"); got != "web" {
			t.Errorf("withheld by %q while b is restarted", got)
		}
		s.replace("b", "b-1")
		if got := s.reserves("c"); got != "" {
			t.Errorf("withheld by %q", got)
		}
	})
}

// A target of several groups is restarted if all of them allow it.
func TestEachGroupOfATargetMayWithholdItsRestart(t *testing.T) {
	playThree(t, func(s *stage) {
		s.rules(map[string]group.Rule{"web": holding(t, "2", "*"), "pair": holding(t, "1", "a", "b"), "free": rule(t, "3", []string{"*"}, nil)})
		pass(2 * time.Second)
		for step, c := range []struct{ targets, want string }{
			{"c", ""}, {"a", "web"},
		} {
			if got := s.reserves(c.targets); got != c.want {
				t.Errorf("step %d: withheld by %q, want %q", step, got, c.want)
			}
		}
		s.groups.Release("c")
		s.answers["b"].say(probe.Failure)
		pass(3 * time.Second)
		if got := s.reserves("a", "c", "b"); got != "pair,web," {
			t.Errorf("withheld by %q", got)
		}
	})
}

// What is reserved or withheld of targets and groups that are gone is forgotten.
func TestRestartsOfWhatIsGoneAreForgotten(t *testing.T) {
	playThree(t, func(s *stage) {
		s.reserves("a", "b")
		s.rules(map[string]group.Rule{"other": holding(t, "2", "*")})
		if got := s.reserves("b"); got != "other" {
			t.Errorf("withheld by %q", got)
		}
		s.rules(map[string]group.Rule{})
		if got := s.reserves("b"); got != "" {
			t.Errorf("withheld by %q without groups", got)
		}
		s.rules(map[string]group.Rule{"web": holding(t, "1", "*")})
		pass(2 * time.Second)
		s.reserves("a", "b")
		delete(s.set, probe.ID{Target: "a", Kind: probe.Readiness})
		s.apply()
		s.engine.Report(probe.Instance{Target: "a", ID: "static", Phase: probe.Gone})
		pass(2 * time.Second)
		s.target("a", probe.Success, nil)
		s.apply()
		pass(3 * time.Second)
		if got := s.reserves("c"); got != "" {
			t.Errorf("withheld by %q", got)
		}
	})
}

// During a reload it is not known which targets and groups there will be.
func TestRestartsAreWithheldDuringAReload(t *testing.T) {
	playThree(t, func(s *stage) {
		release := s.groups.Hold()
		if got := s.reserves("a", "unknown"); got != "web," {
			t.Errorf("withheld by %q", got)
		}
		release()
		if got := s.reserves("a"); got != "" {
			t.Errorf("withheld by %q", got)
		}
	})
}

// In a fleet a restart that Acquire has allowed is made unless those that other engines have reserved leave too few.
func TestARestartIsWithheldByThoseOfOtherEngines(t *testing.T) {
	playThree(t, func(s *stage) {
		s.rules(map[string]group.Rule{"web": holding(t, "2", "*"), "free": rule(t, "1", []string{"*"}, nil)})
		pass(2 * time.Second)
		s.reserves("a")
		s.engine.Report(probe.Instance{Target: "a", ID: "static", Phase: probe.Running, Managed: true, Reason: probe.ReasonEnding})
		pass(2 * time.Second) // it drains
		if got := s.groups.Floors("a"); !slices.Equal(got, []string{"web"}) {
			t.Errorf("its floors are %v", got)
		}
		for _, c := range []struct {
			reserved []string
			want     string
		}{{nil, ""}, {[]string{"a"}, ""}, {[]string{"gone"}, ""}, {[]string{"a", "b"}, "web"}} {
			s.reserved = map[string][]string{"web": c.reserved, "free": {"a", "b", "c"}}
			if by := s.groups.WithheldBy("a"); by != c.want {
				t.Errorf("while %v are reserved it is withheld by %q, want %q", c.reserved, by, c.want)
			}
		}
		s.groups.Acquire("c", "static", true)
		if by := s.groups.WithheldBy("c"); by != "" {
			t.Errorf("a forced restart is withheld by %q", by)
		}
		s.groups.Release("c")
		s.answers["b"].say(probe.Failure)
		pass(3 * time.Second)
		s.reserved = map[string][]string{"web": {"a", "c"}}
		if by := s.groups.Acquire("b", "static", false) + s.groups.WithheldBy("b"); by != "" {
			t.Errorf("the restart of a member that takes no requests is withheld by %q", by)
		}
	})
}

// What other engines have reserved does not count, and not twice if this one knows it, too.
func TestReservationsOfOtherEnginesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, set: probe.Set{}, answers: map[string]*answer{}, engine: engine.New(engine.Config{})}
		var reserved []string
		s.groups = group.New(group.Config{Engine: s.engine, Reserved: func(name string) []string { return reserved }})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = s.engine.Run(ctx) })
		defer running.Wait()
		defer cancel()
		for _, name := range []string{"a", "b", "c", "d"} {
			s.target(name, probe.Success, nil)
		}
		s.apply()
		s.rules(map[string]group.Rule{"web": holding(t, "2", "*")})
		pass(3 * time.Second)
		reserved = []string{"a", "b"}
		if got := s.reserves("c", "a"); got != "web," {
			t.Errorf("withheld by %q", got)
		}
		reserved = []string{"a"}
		if got := s.reserves("c"); got != "" {
			t.Errorf("withheld by %q", got)
		}
	})
}
