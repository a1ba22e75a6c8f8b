package status

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/golden"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files")

// shownAt is the time at which the targets of a test are shown.
var shownAt = time.Date(2026, 1, 31, 3, 4, 5, 0, time.Local)

const (
	backOff   = "killed by SIGTERM (exit status 143); next start in 5m (back-off), at 2026-01-31T03:09:00Z: cannot open the queue: permission denied"
	noAnswer  = "dial tcp 127.0.0.1:21049: connect: connection refused"
	longOK    = "16 of 16 replicas are in sync, the slowest is 0.2 s behind; next check of the archive at midnight, as the runbook says"
	shortFail = "status 503"
)

// shownTargets are targets of many states.
func shownTargets() []api.Target {
	ago := func(d time.Duration) time.Time { return shownAt.Add(-d) }
	return []api.Target{
		{Name: "worker", State: probe.StateCrashLooping, InTrouble: true, Since: ago(time.Hour), Instance: api.Instance{ID: "4711", Phase: probe.Ended, Since: ago(48 * time.Second), Restarts: 25, Reason: probe.ReasonBackOff, Detail: backOff},
			Probes: []api.Probe{{ID: "worker:liveness", Target: "worker", Verdict: probe.Passing, Last: probe.Failure, Run: 1, Threshold: 3, Progress: "1/3", WaitReason: verdict.NotRunning}}},
		{Name: "shop/db", Address: "10.0.0.7", Labels: map[string]string{"team": "shop", "tier": "gold"}, State: probe.StateNotReady, InTrouble: true, Since: ago(192 * time.Second), Gateway: probe.GatewayDown,
			Probes: []api.Probe{
				{ID: "shop/db:readiness/tcp", Target: "shop/db", Verdict: probe.Failing, Decided: true, Since: ago(192 * time.Second), Last: probe.Failure, Run: 9, Threshold: 3, Progress: "3/3", Next: shownAt.Add(400 * time.Millisecond),
					Result: &api.Result{Outcome: probe.Failure, Reason: probe.ReasonTCPRefused, Detail: noAnswer, At: ago(600 * time.Millisecond), DurationSeconds: 0.0004}},
				{ID: "shop/db:liveness", Target: "shop/db", Verdict: probe.Passing, Decided: true, Since: ago(26 * time.Hour), Last: probe.Failure, Run: 2, Threshold: 3, Progress: "2/3", Attempting: true,
					Result: &api.Result{Outcome: probe.Failure, Reason: probe.ReasonHTTPStatus, Detail: shortFail, At: ago(time.Second), DurationSeconds: 0.0031}},
			}},
		{Name: "shop/web", Address: "10.0.0.8", State: probe.StateReady, Ready: true, Since: ago(26 * time.Hour), Gateway: probe.GatewayReady,
			Probes: []api.Probe{
				{ID: "shop/web:startup", Target: "shop/web", Verdict: probe.Passing, Decided: true, Last: probe.Success, Run: 1, Threshold: 1, Progress: "1/1", WaitReason: verdict.Held},
				{ID: "shop/web:readiness", Target: "shop/web", Verdict: probe.Passing, Decided: true, Since: ago(26 * time.Hour), Last: probe.Success, Run: 1, Threshold: 1, Progress: "1/1", Next: shownAt.Add(2 * time.Second),
					Result: &api.Result{Outcome: probe.Success, Detail: longOK, At: ago(time.Second), DurationSeconds: 0.032052852}},
			}},
	}
}

// shown returns the output of the commands on a screen.
func shown(on cli.Screen) string {
	var s strings.Builder
	section := func(command, text string) { fmt.Fprintf(&s, "$ sonde %s\n%s\n", command, text) }
	targets := shownTargets()
	foot := groupLines(on, []api.Group{{Name: "shop", State: "down", Need: 1, Counts: api.GroupCounts{Total: 2, Ready: 0, Down: 2}}}, "", maxGroupLines) +
		gatewayLines(on, []api.Gateway{{GatewayStatus: group.GatewayStatus{Gateway: "lb", Output: "haproxy", Error: "dial unix /run/haproxy.sock: connect: no such file or directory", ErrorSince: shownAt.Add(-192 * time.Second)}, State: api.GatewayFailing}}, "", maxGroupLines, shownAt) +
		engineLines(on, api.Stats{Health: api.Health{Score: 3, Degraded: true, StalledSeconds: 0.9}})
	section("status", table(targets, shownAt, on, false)+foot)
	section("status -o wide", table(targets, shownAt, on, true))
	targets[1].Explanation = []string{
		"shop/db is not ready (for 3m12s): a readiness probe fails.",
		"readiness/tcp has been failing for 3m12s. The last attempt failed 600ms ago, and took 400µs: tcp.refused: " + noAnswer + ". The next attempt is due in 400ms.",
		"liveness has been passing for 1d2h: 2/3 failures, 1 more in a row decides it. The last attempt failed 1s ago, and took 3.1ms: http.status: status 503. The next attempt is under way.",
	}
	section("explain shop/db", explanation(on, targets[1]))
	failing, passing := probe.Failing, probe.Passing
	section("history shop/db", historyText(context.Background(), on, nil, api.History{Transitions: []api.Transition{
		{At: shownAt.Add(-26 * time.Hour), Text: "readiness/tcp is passing, after 1 attempt succeeded", Verdict: &passing, State: probe.StateReady},
		{At: shownAt.Add(-192 * time.Second), Text: "readiness/tcp is failing, after 3 attempts in a row failed, the target is not ready: tcp.refused: " + noAnswer, Verdict: &failing, State: probe.StateNotReady},
		{At: shownAt.Add(-48 * time.Second), Text: "instance 4711 ended, the target is crash looping: restart.back_off: " + backOff, State: probe.StateCrashLooping},
	}}))
	section("plan", PlanText(on, api.Plan{Changed: true, Changes: []api.TargetChange{
		{Name: "shop/new", Action: "added", Instance: "start"},
		{Name: "shop/web", Action: "changed", Arguments: []api.ArgumentChange{{Name: "address", Before: "10.0.0.8", After: "10.0.0.9"}},
			Probes: []api.ProbeChange{{ID: "shop/web:readiness", Action: "replaced"}}},
		{Name: "shop/old", Action: "removed", Instance: "end"},
	}, Targets: api.TargetChanges{Added: 1, Changed: 1, Removed: 1, Kept: 2}}))
	return s.String()
}

// The golden files contain ␛ instead of the escape character.
func TestWhatTerminalsOfThreeWidthsShow(t *testing.T) {
	for _, width := range []int{80, 100, 160} {
		for _, color := range []bool{false, true} {
			on := cli.Screen{Width: width, Height: 50, Color: color}
			got := shown(on)
			plain := cli.Screen{Width: width, Height: 50}
			if !color {
				checkFits(t, got, plain)
			}
			name := fmt.Sprintf("testdata/%d.txt", width)
			if color {
				name = fmt.Sprintf("testdata/%d-color.txt", width)
			}
			golden.Check(t, name, strings.ReplaceAll(got, "\x1b", "␛"), *rewrite)
		}
	}
}

// A coloured text without its colours equals the plain text.
func TestColoursChangeNothingElse(t *testing.T) {
	colored := shown(cli.Screen{Width: 100, Height: 50, Color: true})
	for _, c := range []cli.Color{cli.Red, cli.Green, cli.Yellow, "\x1b[0m"} {
		if !strings.Contains(colored, string(c)) {
			t.Errorf("%q is not used", c)
		}
		colored = strings.ReplaceAll(colored, string(c), "")
	}
	if plain := shown(cli.Screen{Width: 100, Height: 50}); colored != plain {
		t.Errorf("without colours:\n%s\nplain:\n%s", colored, plain)
	}
}

func TestAPipeGetsWholeLines(t *testing.T) {
	got := shown(cli.Plain)
	for _, want := range []string{"NEXT         RESULT\n", " restart.back_off: " + backOff + "\n", longOK} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Error("a pipe gets colours")
	}
}

func checkFits(t *testing.T, text string, on cli.Screen) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > on.Width {
			t.Errorf("a line has %d of %d columns: %s", n, on.Width, line)
		}
	}
}
