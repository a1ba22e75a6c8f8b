package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// Reports of gateways never fail a target: it is gray while they contradict its probe, and the detail quotes both sides.
func TestATargetIsGrayWhileGatewaysContradictItsProbe(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		p := with(says(probe.Success))
		p.Rule = probe.Rule{Period: time.Second, FailureThreshold: 3}
		apply(t, e, probe.Set{readiness: p, liveness: p})
		e.Report(instance("1"))
		pass(10 * time.Second)
		say := func(by string, requests, failures int) {
			if !e.Admin().ReportTraffic("web", engine.Traffic{By: by, Requests: requests, Failures: failures, Detail: "HTTP 503\n"}) {
				t.Error("the target is not known")
			}
		}
		wantState := func(when string, state probe.TargetState) {
			t.Helper()
			if got, _ := e.Target("web"); got.State != state || !got.Ready {
				t.Errorf("%s: the target is %v, ready: %t, want %v", when, got.State, got.Ready, state)
			}
		}
		say("edge-1", 40, 2)
		say("edge-2", 10_000, 90)
		pass(5 * time.Second)
		wantState("while few requests fail", probe.StateReady)
		for range 10 {
			say("edge-1", 40, 3)
			pass(time.Second)
		}
		wantState("while 3 of 40 fail", probe.StateDegraded)
		got := status(t, e, readiness)
		if got.Result.Reason != "gateway.gray" || got.Result.Detail != "edge-1 reports that 3 of 40 requests failed (HTTP 503); the probe reports: success" {
			t.Errorf("got %s: %s", got.Result.Reason, got.Result.Detail)
		}
		want(t, e, readiness, probe.Passing)
		if status(t, e, liveness).Result.Outcome != probe.Success {
			t.Error("the liveness probe warns, too")
		}
		say("edge-1", 40, 0)
		pass(10 * time.Second)
		wantState("after it has taken that back", probe.StateReady)
		say("edge-1", 40, 40)
		pass(10 * time.Second)
		wantState("while all fail", probe.StateDegraded)
		pass(2 * time.Minute)
		wantState("after a gateway is silent", probe.StateReady)
	})
}

func TestWhatGatewaysSayIsBounded(t *testing.T) {
	bubble(t, engine.Config{Redact: func(s string) string { return strings.ReplaceAll(s, "hunter22", "(sensitive)") }}, func(t *testing.T, e *engine.Engine) {
		p := with(says(probe.Success))
		p.Rule = probe.Rule{Period: time.Second}
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("1"))
		pass(5 * time.Second)
		for i := range 100 {
			e.Admin().ReportTraffic("web", engine.Traffic{By: fmt.Sprint(i, strings.Repeat("x", 1000)), Requests: 5, Failures: 5, Detail: "hunter22 \x1b" + strings.Repeat("y", 10_000)})
		}
		pass(5 * time.Second)
		got := status(t, e, readiness).Result.Detail
		if n := strings.Count(got, "reports that 5 of 5"); n != 16 || len(got) > 16*400 || strings.Contains(got, "hunter22") || strings.Contains(got, "\x1b") {
			t.Errorf("%d gateways in %d bytes: %.200s", n, len(got), got)
		}
		if e.Admin().ReportTraffic("none", engine.Traffic{}) {
			t.Error("a target is known that does not exist")
		}
	})
}
