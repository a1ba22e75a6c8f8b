package execprobe

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestTheResultSaysHowTheCommandEnded(t *testing.T) {
	inEachWay(t, func(t *testing.T, run runFunc) {
		noShebang := write(t, "garbage", "\x01\x02", 0o755)
		notExecutable := write(t, "plain", "#!/bin/sh\n", 0o644)
		for name, c := range map[string]struct {
			config  Config
			outcome probe.Outcome
			reason  probe.Reason
			detail  string
		}{
			"exit 0":           {sh(`exit 0`), probe.Success, "", ""},
			"exit 0 talking":   {sh(`echo fine`), probe.Success, "", "fine"},
			"exit 3":           {sh(`exit 3`), probe.Failure, probe.ReasonExecExit, "exit status 3"},
			"exit 3 talking":   {sh(`echo broken; exit 3`), probe.Failure, probe.ReasonExecExit, "exit status 3: broken"},
			"stderr after":     {sh(`echo e >&2; echo o; exit 1`), probe.Failure, probe.ReasonExecExit, "exit status 1: o\ne"},
			"signal":           {sh(`kill -9 $$$$`), probe.Failure, probe.ReasonExecSignal, "killed by signal: killed"},
			"hostile output":   {sh(`printf 'a\033[2Jb'`), probe.Success, "", "a�[2Jb"},
			"stdin is empty":   {sh(`cat`), probe.Success, "", ""},
			"missing program":  {Config{Command: []string{"no-such-program"}}, probe.Unknown, "exec.start", "no-such-program"},
			"missing file":     {Config{Command: []string{"/no/such/file"}}, probe.Unknown, "exec.start", "/no/such/file"},
			"no permission":    {Config{Command: []string{notExecutable}}, probe.Unknown, "exec.start", "permission"},
			"not a program":    {Config{Command: []string{noShebang}}, probe.Unknown, "exec.start", "exec format"},
			"missing dir":      {Config{Command: []string{"/bin/true"}, Dir: "/no/such/dir"}, probe.Unknown, "exec.start", "/no/such/dir"},
			"unknown user":     {Config{Command: []string{"/bin/true"}, User: "no-such-user"}, probe.Unknown, "exec.start", "no-such-user"},
			"group is missing": {Config{Command: []string{"/bin/true"}, User: "424242"}, probe.Unknown, "exec.start", "424242:gid"},
		} {
			t.Run(name, func(t *testing.T) {
				r := attempt(t, run, c.config, probe.Target{}, testsync.Timeout)
				if r.Outcome != c.outcome || r.Reason != c.reason || !strings.Contains(r.Detail, c.detail) {
					t.Errorf("got %v %q %q, want %v %q with %q", r.Outcome, r.Reason, r.Detail, c.outcome, c.reason, c.detail)
				}
				if c.outcome == probe.Success && r.Detail != c.detail {
					t.Errorf("detail %q, want %q", r.Detail, c.detail)
				}
			})
		}
	})
}

func TestDeadlineIsAFailureAndKillsTheWholeGroup(t *testing.T) {
	inEachWay(t, func(t *testing.T, run runFunc) {
		pids := filepath.Join(t.TempDir(), "pids")
		h := newHandler(t, run, sh(`echo waiting; sleep 600 & echo $$$$ $! >'`+pids+`'; wait`))
		r := atDeadline(t, h, "the command's child", isWritten(pids))
		if r.Outcome != probe.Failure || r.Reason != probe.ReasonExecTimeout || !strings.Contains(r.Detail, "waiting") {
			t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
		}
		for _, pid := range readPids(t, pids) {
			awaitGone(t, pid)
		}
	})
}

func TestDeadlineHoldsWhenADaemonKeepsThePipeOpen(t *testing.T) {
	inEachWay(t, func(t *testing.T, run runFunc) {
		needSetsid(t)
		config, pids := daemon(t, "wait")
		r := atDeadline(t, newHandler(t, run, config), "the daemon", isWritten(pids))
		if r.Reason != probe.ReasonExecTimeout {
			t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
		}
	})
}

func TestProbeDoesNotWaitForADaemonThatKeepsThePipeOpen(t *testing.T) {
	inEachWay(t, func(t *testing.T, run runFunc) {
		needSetsid(t)
		config, _ := daemon(t, "exit 0")
		r := withoutDeadline(t, newHandler(t, run, config))
		if r.Outcome != probe.Success || r.Detail != "ready" {
			t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
		}
	})
}

func TestCommandThatEndedInTimeCountsWhenTheTimeIsOverWhileAPipeIsHeldOpen(t *testing.T) {
	inEachWay(t, func(t *testing.T, run runFunc) {
		needSetsid(t)
		config, _ := daemon(t, `echo $$$$ >"$OWN"`)
		own := filepath.Join(t.TempDir(), "own")
		config.Env = map[string]string{"OWN": own}
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan probe.Result, 1)
		h := newHandler(t, run, config)
		go func() { result <- h.Probe(ctx, probe.Target{}) }()
		testsync.Until(t, "the command's end", func() bool {
			pid, _ := os.ReadFile(own)
			_, err := os.Stat("/proc/" + strings.TrimSpace(string(pid)))
			return len(pid) > 1 && err != nil
		})
		cancel()
		if r := testsync.Receive(t, "the result", result); r.Outcome != probe.Success {
			t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
		}
	})
}

func TestWhatACommandLeavesInItsGroupIsKilled(t *testing.T) {
	inEachWay(t, func(t *testing.T, run runFunc) {
		r := withoutDeadline(t, newHandler(t, run, sh(`sleep 600 & echo $!`)))
		pid, err := strconv.Atoi(r.Detail)
		if err != nil || r.Outcome != probe.Success {
			t.Fatalf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
		}
		awaitGone(t, pid)
	})
}

func TestCancelKillsAndCountsForNothing(t *testing.T) {
	inEachWay(t, func(t *testing.T, run runFunc) {
		pids := filepath.Join(t.TempDir(), "pids")
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan probe.Result, 1)
		h := newHandler(t, run, sh(`echo $$$$ >'`+pids+`'; sleep 600`))
		go func() { result <- h.Probe(ctx, probe.Target{}) }()
		testsync.Until(t, "the command's process ID", isWritten(pids))
		cancel()
		r := testsync.Receive(t, "the result", result)
		if r.Outcome != probe.Unknown || r.Reason != probe.ReasonStopped {
			t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
		}
		for _, pid := range readPids(t, pids) {
			awaitGone(t, pid)
		}
	})
}

func TestNothingIsStartedWhenTheTimeIsOver(t *testing.T) {
	inEachWay(t, func(t *testing.T, run runFunc) {
		file := filepath.Join(t.TempDir(), "ran")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r := newHandler(t, run, sh(`touch '`+file+`'`)).Probe(ctx, probe.Target{}); r.Reason != probe.ReasonStopped {
			t.Errorf("got %v %q", r.Outcome, r.Reason)
		}
		if _, err := os.Stat(file); err == nil {
			t.Error("the command ran")
		}
	})
}

func TestOutputIsBounded(t *testing.T) {
	tier.Slow(t)
	inEachWay(t, func(t *testing.T, run runFunc) {
		for name, script := range map[string]string{
			"stdout":      `head -c 1000000 /dev/zero | tr '\0' o`,
			"stderr":      `head -c 1000000 /dev/zero | tr '\0' e >&2`,
			"both":        `head -c 8000 /dev/zero | tr '\0' o; head -c 8000 /dev/zero | tr '\0' e >&2`,
			"not a cut é": `echo -n x; for i in 1 2 3 4 5 6 7 8 9 10 11; do head -c 1000 /dev/zero | sed 's/\x00/é/g'; done`,
			"failing":     `head -c 1000000 /dev/zero | tr '\0' o; exit 1`,
		} {
			t.Run(name, func(t *testing.T) {
				r := attempt(t, run, sh(script), probe.Target{}, testsync.Timeout)
				if len(r.Detail) > probe.MaxDetail || len(r.Detail) < probe.MaxDetail-3 {
					t.Errorf("%v with %d bytes of detail, want %d", r.Outcome, len(r.Detail), probe.MaxDetail)
				}
			})
		}
	})
}

func TestEnvDirAndWordsComeFromTheTargetToo(t *testing.T) {
	inEachWay(t, func(t *testing.T, run runFunc) {
		t.Setenv("SECRET_TOKEN", "s3cret")
		dir, other := t.TempDir(), t.TempDir()
		target := probe.Target{Env: map[string]string{"A": "target", "B": "target"}, Dir: dir}
		config := sh(`echo "$A $B $C [$SECRET_TOKEN]"; pwd`)
		config.Env = map[string]string{"B": "probe", "C": "probe"}
		if got, want := attempt(t, run, config, target, testsync.Timeout).Detail, "target probe probe []\n"+dir; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		config.Dir = other
		if got, want := attempt(t, run, config, target, testsync.Timeout).Detail, "target probe probe []\n"+other; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		config.Command = []string{"echo", "$(A)", "$(B)", "$$(A)", "$(UNKNOWN)", "$(PATH)"}
		if got, want := attempt(t, run, config, target, testsync.Timeout).Detail, "target probe $(A) $(UNKNOWN) $(PATH)"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if len(target.Env) != 2 || len(config.Env) != 2 {
			t.Error("a map of the caller was written to")
		}
	})
}

func TestUserIsTheProbesElseTheTargets(t *testing.T) {
	inEachWay(t, func(t *testing.T, run runFunc) {
		if os.Geteuid() != 0 {
			t.Skip("only root can run commands as another user")
		}
		if ids, _ := os.ReadFile("/proc/self/uid_map"); strings.HasSuffix(string(ids), " 1\n") {
			t.Skip("this user namespace has no other user")
		}
		target := probe.Target{User: "42424:4242"}
		if got := attempt(t, run, sh(`id -u; id -g; id -G`), target, testsync.Timeout).Detail; got != "42424\n4242\n4242" {
			t.Errorf("got %q", got)
		}
		config := sh(`id -u`)
		config.User = "43434:4242"
		if got := attempt(t, run, config, target, testsync.Timeout).Detail; got != "43434" {
			t.Errorf("got %q", got)
		}
	})
}

func TestNewNamesTheWrongField(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		field  string
	}{
		"no command":    {Config{}, "command"},
		"empty program": {Config{Command: []string{""}}, "command"},
		"bad env":       {Config{Command: []string{"x"}, Env: map[string]string{"A=": ""}}, "env"},
	} {
		t.Run(name, func(t *testing.T) {
			var field *probe.FieldError
			if _, err := New(c.config); !errors.As(err, &field) || field.Field != c.field {
				t.Errorf("New() = %v, want an error about %s", err, c.field)
			}
		})
	}
}

func TestManyAttemptsLeaveNothingBehind(t *testing.T) {
	tier.Slow(t)
	inEachWay(t, func(t *testing.T, run runFunc) {
		needProc(t)
		h := newHandler(t, run, sh(`sleep 600 & exit 0`))
		late := newHandler(t, run, Config{Command: []string{"/bin/sleep", "600"}})
		round := func() {
			h.Probe(t.Context(), probe.Target{})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			late.Probe(ctx, probe.Target{})
		}
		round()
		descriptors, goroutines := countFiles(t), runtime.NumGoroutine()
		for range 50 {
			round()
		}
		testsync.Until(t, "descriptors and goroutines to be as before", func() bool {
			return countFiles(t) <= descriptors && runtime.NumGoroutine() <= goroutines
		})
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid != 0 { // except for the guard of commands, which keeps running
			t.Errorf("a child is left: wait4 = %d, %v", pid, err)
		}
	})
}

func BenchmarkProbeOfTrue(b *testing.B) {
	for name, run := range map[string]runFunc{"as here": command.Plan.Run, "portably": command.Plan.RunPortably} {
		b.Run(name, func(b *testing.B) {
			h := newHandler(b, run, Config{Command: []string{"/bin/true"}})
			b.ReportAllocs()
			for b.Loop() {
				if r := h.Probe(b.Context(), probe.Target{}); r.Outcome != probe.Success {
					b.Fatal(r)
				}
			}
		})
	}
}
