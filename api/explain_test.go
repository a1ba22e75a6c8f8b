package api_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

var explained = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) time.Time { return explained.Add(-d) }

func TestAnExplanationBeginsWithTheState(t *testing.T) {
	for _, test := range []struct {
		target api.Target
		want   string
	}{
		{api.Target{Name: "web", State: probe.StateReady, Ready: true, Since: ago(26 * time.Hour)},
			"web is ready (for 1d2h): it has started, and no readiness probe fails."},
		{api.Target{Name: "web", State: probe.StateNotReady, Since: ago(192 * time.Second)},
			"web is not ready (for 3m12s): a readiness probe fails."},
		{api.Target{Name: "web", State: probe.StateBlind, Ready: true, Since: ago(3200 * time.Millisecond)},
			"web is ready (state blind, for 3.2s): the attempts of a probe cannot run."},
		{api.Target{Name: "web", State: probe.StateCrashLooping},
			"web is not ready (state crash looping): it keeps exiting or being restarted."},
	} {
		if got := test.target.Explain(explained)[0]; got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestAnExplanationHasAMeaningForEachState(t *testing.T) {
	for state := range probe.TargetState(probe.TargetStates) {
		if text := (api.Target{Name: "web", State: state}).Explain(explained)[0]; strings.Contains(text, ": .") {
			t.Errorf("%v: %s", state, text)
		}
	}
}

func TestAnExplanationSaysWhatBecomesOfTheInstance(t *testing.T) {
	for _, test := range []struct {
		instance api.Instance
		want     []string
	}{
		{api.Instance{}, nil},
		{api.Instance{ID: "4711", Phase: probe.Gone, Reason: probe.ReasonOperatorStop, Detail: "stopped by alice", ExitStatus: new(143)},
			[]string{"Instance 4711 ended with exit status 143; no other follows. An operator stopped the target; sonde start starts it: stopped by alice"}},
		{api.Instance{ID: "4711", Phase: probe.Gone, Reason: probe.ReasonExited, Detail: "exit status 3: out of memory", ExitStatus: new(3)},
			[]string{"Instance 4711 ended; no other follows. It exited on its own: exit status 3: out of memory"}},
		{api.Instance{ID: "static", Phase: probe.Running}, nil},
		{api.Instance{ID: "web-1", Phase: probe.Waiting}, []string{"Instance web-1 does not run yet."}},
		{api.Instance{ID: "web-1", Phase: probe.Running, Since: ago(time.Minute)}, []string{"Instance web-1 has been running for 1m."}},
		{api.Instance{ID: "web-3", Phase: probe.Running, Since: ago(time.Minute), Restarts: 2, Detail: "exit status 3"},
			[]string{"Instance web-3 (after 2 restarts) has been running for 1m. The one before it: exit status 3"}},
		{api.Instance{ID: "web-3", Phase: probe.Running, Since: ago(5*time.Hour + 3*time.Minute), Restarts: 1, Reason: probe.ReasonBudget},
			[]string{"Instance web-3 (after 1 restart) has been running for 5h3m. It fails, and is not restarted until the restart budget allows it."}},
		{api.Instance{ID: "web-3", Phase: probe.Ended, Since: ago(42 * time.Second), Reason: probe.ReasonBackOff, Detail: "exit status 3; next start in 5m:\n  last\twords"},
			[]string{"Instance web-3 ended 42s ago. The next one starts after its back-off: exit status 3; next start in 5m: last words"}},
		{api.Instance{ID: "web-3", Phase: probe.Running, Since: ago(time.Minute), Restarts: 1, Detail: "exit status 0: starting\nserving\nstopping\n"},
			[]string{"Instance web-3 (after 1 restart) has been running for 1m. The one before it: exit status 0: starting | serving | stopping"}},
		{api.Instance{ID: "job", Phase: probe.Gone, Reason: "own.reason"}, []string{"Instance job ended; no other follows. own.reason."}},
	} {
		target := api.Target{Name: "web", Instance: test.instance}
		if got := target.Explain(explained)[1:]; !slices.Equal(got, test.want) {
			t.Errorf("got  %q\nwant %q", got, test.want)
		}
	}
}

func TestAnExplanationSaysThatNothingRestartsTheTarget(t *testing.T) {
	for state, want := range map[probe.TargetState]bool{probe.StateFailing: true, probe.StateNotReady: false} {
		target := api.Target{Name: "web", State: state, Instance: api.Instance{ID: probe.StaticID, Phase: probe.Running}}
		if got := strings.Join(target.Explain(explained), " "); strings.Contains(got, "Nothing restarts it") != want {
			t.Errorf("%v: %s", state, got)
		}
	}
}

func TestAnExplanationSaysWhatTheAttemptsOfAProbeAddUpTo(t *testing.T) {
	failure := &api.Result{Outcome: probe.Failure, Reason: probe.ReasonHTTPStatus, Detail: "status 503, want 200-399", At: ago(1200 * time.Millisecond),
		DurationSeconds: 0.0031, Tries: 1, Timings: api.Timings{ConnectSeconds: 0.0002, FirstByteSeconds: 0.0025}}
	next := explained.Add(3200 * time.Millisecond)
	for _, test := range []struct {
		probe api.Probe
		want  string
	}{
		{api.Probe{Verdict: probe.Failing, Decided: true, Since: ago(192 * time.Second), Last: probe.Failure, Run: 40, Threshold: 3, Progress: "3/3", Result: failure, Next: next},
			"db has been failing for 3m12s: 3/3 failures. The last attempt failed 1.2s ago, and took 3.1ms (connect 200µs, first byte 2.5ms): http.status: status 503, want 200-399. The next attempt is due in 3.2s."},
		{api.Probe{Verdict: probe.Passing, Decided: true, Last: probe.Failure, Run: 2, Threshold: 3, Progress: "2/3", Attempting: true},
			"db is passing: 2/3 failures, 1 more in a row decides it. The next attempt is under way."},
		{api.Probe{Verdict: probe.Failing, Decided: true, Last: probe.Success, Run: 1, Threshold: 3, Progress: "1/3", Next: ago(time.Second)},
			"db is failing: 1/3 successes, 2 more in a row decide it. The next attempt is due now."},
		{api.Probe{Verdict: probe.Failing, WaitReason: verdict.InitialDelay, Next: next},
			"db is undecided, and counts as failing until then. It waits for its initial delay, for 3.2s."},
		{api.Probe{Verdict: probe.Undecided, WaitReason: verdict.NotStarted}, "db is undecided. It waits until the startup probes have passed."},
		{api.Probe{Verdict: probe.Passing, Blind: true, Errors: 4, Result: &api.Result{Outcome: probe.Unknown, Reason: "exec.start", Tries: 3}},
			"db cannot be attempted; 4 attempts in a row could not run. The last one took 0s, in 3 tries: exec.start. No attempt is due."},
		{api.Probe{Verdict: probe.Passing, Decided: true, Last: probe.Success, Score: new(int32(12)), Threshold: 20, Progress: "12/20", Attempting: true},
			"db is passing: score 12 of 20, fails at 20. The next attempt is under way."},
		{api.Probe{Verdict: probe.Failing, Decided: true, Last: probe.Success, Score: new(int32(3)), Threshold: 20, Progress: "3/20", Attempting: true},
			"db is failing: score 3 of 20, passes at 0. The next attempt is under way."},
		{api.Probe{Verdict: probe.Failing, Decided: true, OnHold: true, Last: probe.Failure, Score: new(int32(0)), Threshold: 20, Progress: "0/20", WaitReason: verdict.Held},
			"db is failing. The next attempt follows the next start."},
		{api.Probe{Verdict: probe.Passing, Decided: true, Last: probe.Success, Run: 1, Threshold: 1, Progress: "1/1", WaitReason: verdict.Held},
			"db is passing. The next attempt follows the next start."},
	} {
		test.probe.ID, test.probe.Target = "web:db", "web"
		target := api.Target{Name: "web", Probes: []api.Probe{test.probe}}
		if got := target.Explain(explained)[1]; got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestAnExplanationSaysWhatGatewaysDo(t *testing.T) {
	ejection := &api.Ejection{Probe: "web:readiness", Since: ago(12 * time.Second), Until: explained.Add(19 * time.Second), Reason: probe.ReasonTCPRefused, Detail: "connection refused"}
	for _, test := range []struct {
		target api.Target
		want   []string
	}{
		{api.Target{Ready: true, Gateway: probe.GatewayReady}, nil},
		{api.Target{Gateway: probe.GatewayDown}, nil},
		{api.Target{Gateway: probe.GatewayUndecided}, nil},
		{api.Target{Ready: true, Gateway: probe.GatewayDegraded}, []string{"For gateways it is degraded: a readiness probe warns."}},
		{api.Target{Ready: true, Gateway: probe.GatewayDraining}, []string{"For gateways it is draining: its instance terminates, and gets no new requests."}},
		{api.Target{Ready: true, Gateway: probe.GatewayDown, Ejection: ejection},
			[]string{"Gateways send it no requests, for another 19s at most: theirs have failed, the last of them 12s ago: tcp.refused: connection refused."}},
	} {
		if got := test.target.Explain(explained)[1:]; !slices.Equal(got, test.want) {
			t.Errorf("got  %q\nwant %q", got, test.want)
		}
	}
}

func TestAnExplanationSaysUntilWhenATargetIsDamped(t *testing.T) {
	for _, test := range []struct {
		target api.Target
		want   []string
	}{
		{api.Target{Name: "web", State: probe.StateReady, Ready: true, Damping: &api.Damping{Penalty: 1433, Flapped: ago(5 * time.Minute)}},
			[]string{"web is ready: it has started, and no readiness probe fails.", "It has a penalty of 1433, since it has flapped, last 5m ago."}},
		{api.Target{Name: "web", State: probe.StateDamped, Gateway: probe.GatewayDown, Damping: &api.Damping{Penalty: 2866, Flapped: ago(time.Minute), Since: ago(2 * time.Minute), Until: explained.Add(29 * time.Minute)}},
			[]string{"web is not ready (state damped): it has flapped too often.",
				"It has been damped for 2m, for another 29m unless it flaps again (penalty 2866, last flap 1m ago): its probes go on, nobody is notified of it, it is not restarted because they fail, and gateways send it no requests."}},
	} {
		if got := test.target.Explain(explained); !slices.Equal(got, test.want) {
			t.Errorf("got  %q\nwant %q", got, test.want)
		}
	}
}

func TestAnExplanationSaysWithWhomAnAttemptHasSpoken(t *testing.T) {
	for _, test := range []struct {
		result api.Result
		want   string
	}{
		{api.Result{Protocol: "HTTP/1.1"}, ""}, // as configured
		{api.Result{Protocol: "HTTP/2.0", TLSVersion: "TLS 1.3", Peer: "10.0.0.7", Redirects: 2}, "It spoke HTTP/2.0 over TLS 1.3 with 10.0.0.7, after 2 redirects. "},
		{api.Result{TLSVersion: "TLS 1.2"}, "It spoke TLS 1.2. "},
		{api.Result{Peer: "::1"}, "It spoke with ::1. "},
		{api.Result{Protocol: "HTTP/1.1", Redirects: 1}, "It spoke HTTP/1.1, after 1 redirect. "},
	} {
		test.result.Outcome = probe.Success
		target := api.Target{Name: "web", Probes: []api.Probe{{ID: "web:readiness", Target: "web", Decided: true, Verdict: probe.Passing, Result: &test.result}}}
		want := "readiness is passing. The last attempt succeeded, and took 0s. " + test.want + "No attempt is due."
		if got := target.Explain(explained)[1]; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestAnExplanationHasWhatMattersFirst(t *testing.T) {
	target := api.Target{Name: "web", Probes: []api.Probe{
		{ID: "passing", Verdict: probe.Passing, Decided: true, Last: probe.Success},
		{ID: "waiting", WaitReason: verdict.NotStarted},
		{ID: "shaky", Verdict: probe.Passing, Decided: true, Last: probe.Failure, Run: 1, Threshold: 3},
		{ID: "undecided"},
		{ID: "blind", Blind: true},
		{ID: "failing", Verdict: probe.Failing, Decided: true},
	}}
	var order []string
	for _, text := range target.Explain(explained)[1:] {
		order = append(order, strings.Fields(text)[0])
	}
	if want := []string{"blind", "failing", "undecided", "shaky", "waiting", "passing"}; !slices.Equal(order, want) {
		t.Errorf("order is %v, want %v", order, want)
	}
}
