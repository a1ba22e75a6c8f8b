package verdict_test

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

func TestThePeriodFollowsTheState(t *testing.T) {
	all := probe.Rule{Period: 10 * time.Second, StartingPeriod: 200 * time.Millisecond, FailingPeriod: time.Second}
	plain := probe.Rule{Period: all.Period}
	for name, test := range map[string]struct {
		state   verdict.State
		decided bool
		want    time.Duration
	}{
		"no attempts yet":                  {verdict.State{}, false, all.StartingPeriod},
		"readiness without attempts":       {verdict.State{Verdict: probe.Failing}, false, all.StartingPeriod},
		"liveness without attempts":        {verdict.State{Verdict: probe.Passing}, false, all.StartingPeriod},
		"a first failure":                  {verdict.State{Verdict: probe.Passing, Last: probe.Failure, Run: 1}, false, all.StartingPeriod},
		"passing":                          {verdict.State{Verdict: probe.Passing, Last: probe.Success, Run: 1}, true, all.Period},
		"passing after a failure":          {verdict.State{Verdict: probe.Passing, Last: probe.Failure, Run: 1}, true, all.FailingPeriod},
		"passing, a failure not counted":   {verdict.State{Verdict: probe.Passing, Last: probe.Failure}, true, all.Period},
		"passing, an attempt without word": {verdict.State{Verdict: probe.Passing, Last: probe.Success, Run: 1, Errors: 1}, true, all.Period},
		"passing with a score":             {verdict.State{Verdict: probe.Passing, Last: probe.Success, Run: 4, Policy: probe.PolicyEvidence}, true, all.FailingPeriod},
		"passing without a score":          {verdict.State{Verdict: probe.Passing, Last: probe.Success, Policy: probe.PolicyEvidence}, true, all.Period},
		"failing":                          {verdict.State{Verdict: probe.Failing, Last: probe.Failure, Run: 3}, true, all.FailingPeriod},
		"failing after a success":          {verdict.State{Verdict: probe.Failing, Last: probe.Success, Run: 1}, true, all.FailingPeriod},
	} {
		t.Run(name, func(t *testing.T) {
			if got := verdict.Period(all, test.state, test.decided); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if got := verdict.Period(plain, test.state, test.decided); got != plain.Period {
				t.Errorf("got %v for one period", got)
			}
		})
	}
}
