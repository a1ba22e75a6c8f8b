package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// threePeriods is a rule with a different period for each state.
var threePeriods = probe.Rule{
	Period: 10 * time.Second, StartingPeriod: 200 * time.Millisecond, FailingPeriod: time.Second, Timeout: 100 * time.Millisecond,
	SuccessThreshold: 2, FailureThreshold: 3,
}

// gaps returns the times between attempts, beginning with the attempt since.
func gaps(s *script, since int) (all []time.Duration) {
	times := s.attempts()
	for i := since; i < len(times); i++ {
		all = append(all, times[i].Sub(times[i-1]))
	}
	return all
}

func TestThePeriodFollowsTheStateOfAProbe(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		p := with(h)
		p.Rule = threePeriods
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("a"))
		pass(time.Second)
		want(t, e, readiness, probe.Passing)
		if n := len(h.attempts()); n < 2 || n > 3 {
			t.Fatalf("%d attempts in the first second, want 2 or 3", n)
		}
		pass(time.Minute)
		n := len(h.attempts())
		for i, gap := range gaps(h, 3) {
			if gap != threePeriods.Period {
				t.Errorf("while it passes, gap %d is %v", i, gap)
			}
		}

		h.say(probe.Failure)
		pass(14 * time.Second) // period, and three of failing_period
		want(t, e, readiness, probe.Failing)
		pass(10 * time.Second)
		failures := gaps(h, n)
		if first := failures[1]; first < time.Second || first >= 2*time.Second {
			t.Errorf("the second failure came after %v", first)
		}
		for i, gap := range failures[2:] {
			if gap != threePeriods.FailingPeriod {
				t.Errorf("while it fails, gap %d is %v", i, gap)
			}
		}

		h.say(probe.Success)
		pass(2 * time.Second)
		want(t, e, readiness, probe.Passing)
		n = len(h.attempts())
		pass(time.Minute)
		recovered := gaps(h, n)
		if first := recovered[0]; first < threePeriods.Period/2 || first > threePeriods.Period*3/2 {
			t.Errorf("after it recovered, the first gap is %v", first)
		}
		for i, gap := range recovered[1:] {
			if gap != threePeriods.Period {
				t.Errorf("after it recovered, gap %d is %v", i+1, gap)
			}
		}
	})
}

func TestAnotherInstanceHasTheStartingPeriodAgain(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		p := with(h)
		p.Rule = threePeriods
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("a"))
		pass(time.Minute)
		h.say(probe.Unknown)
		n := len(h.attempts())
		e.Report(instance("b"))
		pass(2 * time.Second)
		if tried := len(h.attempts()) - n; tried < 3*9 || tried > 3*12 { // three tries each
			t.Errorf("%d tries in 2s of the new instance", tried)
		}
	})
}

func TestANewRuleHasThePeriodOfTheStateAtOnce(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Failure)
		p := with(h)
		p.Revision = "1"
		p.Rule = probe.Rule{Period: 10 * time.Second, FailureThreshold: 1}
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("a"))
		pass(time.Minute)
		p.Rule.FailingPeriod = time.Second
		apply(t, e, probe.Set{readiness: p})
		n := len(h.attempts())
		pass(10 * time.Second)
		if made := len(h.attempts()) - n; made != 10 {
			t.Errorf("%d attempts in 10s with failing_period = 1s", made)
		}
	})
}

func TestProbesThatFailTogetherAreSpread(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		set := probe.Set{}
		for n := range 200 {
			p := with(h)
			p.Rule = threePeriods
			p.Rule.FailingPeriod = 2 * time.Second
			id := readiness
			id.Target = fmt.Sprint("web", n)
			p.Target.Static = true
			set[id] = p
		}
		apply(t, e, set)
		pass(time.Minute)
		h.say(probe.Failure)
		pass(30 * time.Second)
		n := len(h.attempts())
		pass(2 * time.Second)
		var tenths [20]int
		for _, at := range h.attempts()[n:] {
			tenths[at.UnixNano()/int64(100*time.Millisecond)%20]++
		}
		for i, count := range tenths {
			if count == 0 || count > 30 {
				t.Errorf("%d of 200 attempts in tenth %d of two seconds: %v", count, i, tenths)
			}
		}
	})
}
