package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// startHoldable starts an engine that hold makes hang.
func startHoldable(t *testing.T, config string) *engineProcess {
	t.Helper()
	return startHanging(t, "sonde-holdable", config)
}

// startHanging starts a program with an engine that hangs at some time.
func startHanging(t *testing.T, program, config string, env ...string) *engineProcess {
	t.Helper()
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("the watchdog needs amd64 or arm64")
	}
	e := &engineProcess{dir: t.TempDir(), exited: make(chan struct{})}
	e.write(t, "config.hcl", config)
	log, err := os.Create(filepath.Join(e.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	e.start(t, func(c *exec.Cmd) {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		c.Path, c.Args[0], c.Stderr = path, path, log
		c.Env = append(append(c.Env, "GODEBUG=asyncpreemptoff=1"), env...)
	})
	e.waitListening(t)
	return e
}

// hold makes the engine hang, and waits until the watchdog has started it again.
func (e *engineProcess) hold(t *testing.T) {
	t.Helper()
	testsync.Until(t, "the engine to run, with its watchdog", func() bool { return strings.HasPrefix(e.get("/healthz"), "200") })
	if err := os.Remove(filepath.Join(e.dir, "address")); err != nil {
		t.Fatal(err)
	}
	e.write(t, "hold", "")
	e.waitListening(t)
}

// restarts returns how often the watchdog has started the engine, as text.
func (e *engineProcess) restarts() string {
	_, text, _ := strings.Cut(e.get("/metrics"), "\nsonde_watchdog_restarts_total ")
	text, _, _ = strings.Cut(text, "\n")
	return text
}

func TestAnEngineWhoseProcessorsAreHeldIsStartedAgain(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	e := startHoldable(t, `
		engine {
		  state    = "sonde.state"
		  watchdog = "10s"
		}
		target "web" {
		  process {
		    command = ["sh", "-c", "echo $$$$ >>pids; exec sleep 1000"]
		    adopt   = true
		  }
		  probe "readiness" {
		    exec { command = ["test", "-e", "pids"] }
		    period  = "20ms"
		    timeout = "10s"
		  }
		}
		target "other" {
		  process { command = ["sleep", "1000"] }
		}`)
	ready := `"restarts":0},"started":true,"ready":true,"live":true,"state":"ready"`
	testsync.Until(t, "the target to be ready", func() bool { return strings.Contains(e.get("/v1/targets/web"), ready) })
	pid := e.text("pids")
	for n := range 2 {
		e.hold(t)
		if got, want := e.restarts(), fmt.Sprint(n+1); got != want {
			t.Errorf("%s restarts by the watchdog in /metrics, want %s", got, want)
		}
		testsync.Until(t, "the target to be ready", func() bool { return strings.Contains(e.get("/v1/targets/web"), ready) })
	}
	if got := e.text("pids"); got != pid {
		t.Errorf("the process was started again: %s, then %s", pid, got)
	}
	if log := e.text("log"); strings.Count(log, "its watchdog has started it again") != 2 || strings.Contains(log, `"verdict":"failing","previous":"passing"`) {
		t.Errorf("the log is %s", log)
	}
	testsync.Until(t, "the exit status of the other process's guards to be taken", func() bool {
		statuses, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range statuses {
			text, _ := os.ReadFile(file)
			_, fields, _ := strings.Cut(string(text), ") ")
			if strings.HasPrefix(fields, fmt.Sprintf("Z %d ", e.Process.Pid)) {
				return false
			}
		}
		return true
	})
	e.write(t, "config.hcl", withoutTargets) // ends the process
	if err := e.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "the process to end", func() bool { _, err := os.Stat("/proc/" + pid); return err != nil })
	if code := e.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Without state, and with a configuration that a reload has rejected.
func TestAnEngineThatHungGoesOnWithTheConfigurationThatItHadAccepted(t *testing.T) {
	tier.CI(t)
	e := startHoldable(t, `
		engine {
		  watchdog = "10s"
		}
		target "web" {
		  for_each = toset([for i in range(12) : tostring(i)])
		  probe "readiness" {
		    exec { command = ["true"] }
		    timeout = "10s"
		  }
		}`)
	for _, text := range []string{`target "web" {`, "engine {\n  watchdog    = \"10s\"\n  allow_empty = true\n}"} {
		e.write(t, "config.hcl", text)
		e.hold(t)
		testsync.Until(t, "the targets to be ready", func() bool { return strings.Count(e.get("/v1/targets"), `"ready":true`) == 12 })
		if got := e.get("/metrics"); !strings.Contains(got, "sonde_config_last_reload_successful 0\n") {
			t.Errorf("after %q: the metrics are %s", text, got)
		}
	}
	if code := e.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestAStoppedEngineIsNotStartedAgain stops an engine for longer than another one's watchdog
// needs twice.
func TestAStoppedEngineIsNotStartedAgain(t *testing.T) {
	tier.CI(t)
	t.Parallel()
	config := "engine {\n  allow_empty = true\n  watchdog    = \"10s\"\n}"
	stopped, clock := startHoldable(t, config), startHoldable(t, config)
	if err := stopped.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	clock.hold(t)
	clock.hold(t)
	if err := stopped.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	clock.hold(t)
	if n, hung := stopped.restarts(), clock.restarts(); n != "0" || hung != "3" {
		t.Errorf("the watchdog has started the stopped engine %s times, the one that hung %s times", n, hung)
	}
}

// TestAnEngineThatHangsWhileItStopsIsEnded stops an engine, which waits for a process, and makes it
// hang.
func TestAnEngineThatHangsWhileItStopsIsEnded(t *testing.T) {
	tier.Slow(t)
	t.Parallel()
	e := startHoldable(t, `
		engine {
		  watchdog = "10s"
		}
		target "web" {
		  process { command = ["sh", "-c", "trap '' TERM; echo $$$$ >pid; while :; do sleep 0.01; done"] }
		  termination_grace_period = "1h"
		}`)
	testsync.Until(t, "the process", func() bool { return e.text("pid") != "" })
	testsync.Until(t, "the engine to run", func() bool { return strings.HasPrefix(e.get("/healthz"), "200") })
	if err := e.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "the engine to stop", func() bool { return strings.Contains(e.text("log"), "shutting down") })
	if err := os.Remove(filepath.Join(e.dir, "address")); err != nil {
		t.Fatal(err)
	}
	e.write(t, "hold", "")
	e.waitEnded(t)
	if code := e.ProcessState.ExitCode(); code != 1 || e.text("address") != "" {
		t.Errorf("exit code %d, and %q listens, want 1 and no other engine", code, e.text("address"))
	}
	testsync.Until(t, "the process to end", func() bool { _, err := os.Stat("/proc/" + e.text("pid")); return err != nil })
}

func (e *engineProcess) waitEnded(t *testing.T) {
	t.Helper()
	testsync.Until(t, "the engine to end", func() bool {
		select {
		case <-e.exited:
			return true
		default:
			return false
		}
	})
}

// TestAProgramThatHangsAfterItsEngineIsEnded hangs when all parts of the engine have ended.
func TestAProgramThatHangsAfterItsEngineIsEnded(t *testing.T) {
	tier.CI(t)
	t.Parallel()
	e := startHanging(t, "sonde-held-at-its-end", "engine {\n  allow_empty = true\n  watchdog    = \"10s\"\n}", "GOMAXPROCS=1")
	testsync.Until(t, "the engine to run", func() bool { return strings.HasPrefix(e.get("/healthz"), "200") })
	if err := e.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	e.waitEnded(t)
	if code, log := e.ProcessState.ExitCode(), e.text("log"); code != 1 || !strings.Contains(log, "engine stopped") || strings.Contains(log, "its watchdog has started it again") {
		t.Errorf("exit code %d, want 1; the log is %s", code, log)
	}
}
