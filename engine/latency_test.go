package engine

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

func TestLatencyIsJudgedWithoutWhatTheEngineLost(t *testing.T) {
	both := probe.Rule{WarnAfter: 100 * time.Millisecond, FailAfter: 200 * time.Millisecond}
	warn, fail := probe.Rule{WarnAfter: both.WarnAfter}, probe.Rule{FailAfter: both.FailAfter}
	redirect := probe.Warn(probe.ReasonHTTPRedirect, "status 302")
	tests := map[string]struct {
		rule       probe.Rule
		result     probe.Result
		took, lost time.Duration
		outcome    probe.Outcome
		reason     probe.Reason
	}{
		"fast":                          {both, probe.Succeed(""), 100 * time.Millisecond, 0, probe.Success, ""},
		"slow":                          {both, probe.Succeed(""), 101 * time.Millisecond, 0, probe.Warning, reasonSlow},
		"too slow":                      {both, probe.Succeed(""), 241 * time.Millisecond, 0, probe.Failure, reasonTooSlow},
		"too slow, or the engine was":   {fail, probe.Succeed(""), 240 * time.Millisecond, 0, probe.Warning, reasonSlow},
		"no limit for failures":         {warn, probe.Succeed(""), time.Hour, 0, probe.Warning, reasonSlow},
		"no limit for warnings":         {fail, probe.Succeed(""), 199 * time.Millisecond, 0, probe.Success, ""},
		"no limits":                     {probe.Rule{}, probe.Succeed(""), time.Hour, 0, probe.Success, ""},
		"slow because of the engine":    {both, probe.Succeed(""), time.Second, 950 * time.Millisecond, probe.Success, ""},
		"slow, and the engine was too":  {both, probe.Succeed(""), time.Second, 850 * time.Millisecond, probe.Warning, reasonSlow},
		"more lost than it took":        {both, probe.Succeed(""), time.Second, time.Hour, probe.Success, ""},
		"slow, and a warning otherwise": {both, redirect, 150 * time.Millisecond, 0, probe.Warning, probe.ReasonHTTPRedirect},
		"too slow beside a warning":     {both, redirect, time.Second, 0, probe.Failure, reasonTooSlow},
		"a slow failure":                {both, probe.Fail(probe.ReasonHTTPStatus, "status 500"), time.Second, 0, probe.Failure, probe.ReasonHTTPStatus},
		"an unknown outcome":            {both, probe.Broken(probe.ReasonResources, ""), time.Second, 0, probe.Unknown, probe.ReasonResources},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.result.HTTPStatus = 204
			got := judgeLatency(test.result, int64(test.took), int64(test.lost), &test.rule)
			if got.Outcome != test.outcome || got.Reason != test.reason || got.HTTPStatus != 204 {
				t.Errorf("got %+v, want %v %v", got, test.outcome, test.reason)
			}
		})
	}
	got := judgeLatency(probe.Succeed("status 200"), int64(150*time.Millisecond), 0, &both)
	if want := "took 150ms, warn_after is 100ms: status 200"; got.Detail != want {
		t.Errorf("the detail is %q, want %q", got.Detail, want)
	}
}

func TestAnswersThatAreTooSlowAreEvidence(t *testing.T) {
	slow := probe.Fail(reasonTooSlow, "")
	if answered, missing := evidenceOf(&slow, false); answered != 0 || missing != 0 {
		t.Errorf("without the network: %v, %v", answered, missing)
	}
	slow.Timings = probe.Timings{Resolve: 1, Connect: 1, Connected: true}
	if answered, missing := evidenceOf(&slow, false); answered != theTarget|nameServer || missing != 0 {
		t.Errorf("over the network: %v, %v", answered, missing)
	}
}
