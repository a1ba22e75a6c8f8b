package execprobe

import (
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// The tests in this file correspond to upstream's pkg/probe/exec and to the parts of prober_test.go that concern commands;
// tests/upstream.md compares them.

// logs prints the same 8 bytes N times.
const logs = `i=0; while [ $i -lt $N ]; do printf logs-123; i=$((i+1)); done; `

func TestUpstreamExec(t *testing.T) {
	inEachWay(t, func(t *testing.T, run runFunc) {
		for _, test := range []struct {
			name    string
			config  Config
			timeout time.Duration
			outcome probe.Outcome
			reason  probe.Reason
			detail  string // text that it must contain
		}{
			{"ok", sh("echo OK"), testsync.Timeout, probe.Success, "", "OK"},
			{"exit status 0, said by the command itself", sh("echo OK; exit 0"), testsync.Timeout, probe.Success, "", "OK"},
			{"it cannot be run", Config{Command: []string{"/no/such/command"}}, testsync.Timeout, probe.Unknown, "exec.start", "/no/such/command"},
			{"unhealthy", sh("echo Fail; exit 1"), testsync.Timeout, probe.Failure, probe.ReasonExecExit, "exit status 1: Fail"},
			{"unhealthy, and something of it goes on", sh("sleep 600 & exit 1"), testsync.Timeout, probe.Failure, probe.ReasonExecExit, "exit status 1"},
			{"timeout", sh("echo begun; sleep 600"), time.Second, probe.Failure, probe.ReasonExecTimeout, "killed after"},
		} {
			t.Run(test.name, func(t *testing.T) {
				r := attempt(t, run, test.config, probe.Target{}, test.timeout)
				if r.Outcome != test.outcome || r.Reason != test.reason || !strings.Contains(r.Detail, test.detail) {
					t.Errorf("got %v %q %q, want %v %q with %q", r.Outcome, r.Reason, r.Detail, test.outcome, test.reason, test.detail)
				}
			})
		}
		t.Run("ok, and the output is cut", func(t *testing.T) {
			config := sh(logs)
			config.Env = map[string]string{"N": "1408"} // 11 KiB
			r := attempt(t, run, config, probe.Target{}, testsync.Timeout)
			if want := strings.Repeat("logs-123", probe.MaxDetail/8); r.Outcome != probe.Success || r.Detail != want {
				t.Errorf("got %v with %d bytes, want %d", r.Outcome, len(r.Detail), len(want))
			}
		})
	})
}

func TestUpstreamNewExecInContainer(t *testing.T) {
	inEachWay(t, func(t *testing.T, run runFunc) {
		for _, test := range []struct {
			name   string
			script string
			want   string
		}{
			{"both outputs", "echo foo; echo bar >&2", "foo\nbar"},
			{"the output of one that fails is kept", "echo foo; exit 2", "exit status 2: foo"},
			{"the output of one that is killed is kept", "echo foo; kill -9 $$$$", "killed by signal: killed: foo"},
		} {
			t.Run(test.name, func(t *testing.T) {
				if r := attempt(t, run, sh(test.script), probe.Target{}, testsync.Timeout); r.Detail != test.want {
					t.Errorf("got %q, want %q", r.Detail, test.want)
				}
			})
		}
		t.Run("what is too long is cut", func(t *testing.T) {
			config := sh(logs + "exit 1")
			config.Env = map[string]string{"N": "1408"}
			r := attempt(t, run, config, probe.Target{}, testsync.Timeout)
			if want := ("exit status 1: " + strings.Repeat("logs-123", probe.MaxDetail/8))[:probe.MaxDetail]; r.Detail != want {
				t.Errorf("got %d bytes, want %d", len(r.Detail), len(want))
			}
		})
	})
}
