package container

import (
	"context"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/drivertest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// This is the example exec-liveness.yaml in the documentation of Kubernetes.
func TestAFileThatGoesAwayRestartsTheContainer(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		w := newWorld(t, r)
		w.exec("liveness", drivertest.Rule, "/subject", "test", "/tmp/healthy")
		w.Run(map[string]restart.Unit{"liveness": w.own("liveness", "touch", "/tmp/healthy")}, nil)
		isLive := func(s engine.TargetStatus) bool {
			return s.Instance.Phase == probe.Running && s.Probes[0].Verdict == probe.Passing && s.Probes[0].Attempts[probe.Success] > 0
		}
		first := w.Until("liveness", "live", isLive)
		ctx, cancel := context.WithTimeout(t.Context(), testsync.Timeout)
		defer cancel()
		var out command.Output
		if end, err := r.Run(ctx, docker.Exec{Container: w.owned()[0].ID, Command: []string{"/subject", "rm", "/tmp/healthy"}, Stdout: &out, Stderr: &out}); err != nil || end.Code != 0 {
			t.Fatal(end, err)
		}
		second := w.Until("liveness", "live again", func(s engine.TargetStatus) bool { return isLive(s) && s.Instance.ID != first.Instance.ID })
		if second.Instance.Restarts != 1 {
			t.Errorf("restarts: %+v", second.Instance)
		}
		if log := w.Log.String(); !strings.Contains(log, "/tmp/healthy") || strings.Count(log, "terminating instance") != 1 {
			t.Error("the log does not say once why it is restarted")
		}
	})
}

// attempts returns a function that makes an attempt in a followed container.
func attempts(t *testing.T, r *dockertest.Runtime, name string) func(timeout time.Duration, words ...string) probe.Result {
	t.Helper()
	runtimes := &Runtimes{}
	rt, release := runtimes.use(r.Socket)
	t.Cleanup(release)
	f := rt.watch.Follow(docker.Selector{Name: name}, func() {})
	t.Cleanup(f.Close)
	testsync.Until(t, "the container to be seen", func() bool { return len(f.View().Containers) == 1 })
	instance := instanceID(f.View().Containers[0].Container)
	return func(timeout time.Duration, words ...string) probe.Result {
		h, err := NewExec(runtimes, r.Socket, execprobe.Config{Command: words, Env: map[string]string{"NAME": "value"}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		return h.Probe(ctx, probe.Target{Instance: instance})
	}
}

func TestResultsOfCommandsInside(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		r.Container(t, "web", "sleep", "1000")
		attempt := attempts(t, r, "web")
		for _, c := range []struct {
			words   []string
			outcome probe.Outcome
			reason  probe.Reason
			detail  string
		}{
			{[]string{"/subject", "exit", "0", "$(NAME)"}, probe.Success, "", "stdout value"},
			{[]string{"/subject", "exit", "3"}, probe.Failure, probe.ReasonExecExit, "exit status 3: stdout"},
			{[]string{"/no/such"}, probe.Unknown, "exec.start", "/no/such"},
			{[]string{"/subject", "output", "100000"}, probe.Success, "", "xxx"},
		} {
			got := attempt(testsync.Timeout, c.words...)
			if got.Outcome != c.outcome || got.Reason != c.reason || !strings.Contains(got.Detail, c.detail) || len(got.Detail) > probe.MaxDetail {
				t.Errorf("%v: %v %v %.200q", c.words, got.Outcome, got.Reason, got.Detail)
			}
		}
		began := time.Now()
		got := attempt(time.Second, "/subject", "parent", "30.0472")
		if took := time.Since(began); got.Outcome != probe.Failure || got.Reason != probe.ReasonExecTimeout || took > 2500*time.Millisecond {
			t.Errorf("after %v: %+v", took, got)
		}
		testsync.Until(t, "no process to be left", func() bool {
			left, _ := exec.Command("pgrep", "-f", "^/subject .*30.0472").Output()
			return len(left) == 0
		})
		r.Signal(t, syscall.SIGSTOP)
		got = attempt(time.Second, "/subject", "exit", "3")
		r.Signal(t, syscall.SIGCONT)
		if got.Outcome != probe.Unknown || got.Reason != probe.ReasonRuntimeTimeout {
			t.Errorf("while the runtime stalls: %+v", got)
		}
		if err := r.Client.Restart(t.Context(), "web", 0); err != nil {
			t.Fatal(err)
		}
		testsync.Until(t, "the new instance to be seen", func() bool {
			got = attempt(testsync.Timeout, "/subject", "exit", "0")
			return got.Outcome == probe.Unknown && got.Reason == probe.ReasonRuntimeNoContainer
		})
	})
}
