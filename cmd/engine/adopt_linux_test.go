package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// withoutTargets is a configuration with a state file and no targets.
const withoutTargets = `engine {
  allow_empty = true
  state       = "sonde.state"
}`

func TestProcessesAndVerdictsOutliveKillsOfTheEngine(t *testing.T) {
	tier.Slow(t)
	const targets = 5
	kills := tier.Pick(5, 20, 20)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	e := &engineProcess{dir: t.TempDir()}
	restart := func() {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(e.dir, "address")); err != nil {
			t.Fatal(err)
		}
		e.exited = make(chan struct{})
		e.start(t, func(c *exec.Cmd) { c.Stderr = log })
		e.waitListening(t)
	}
	e.write(t, "config.hcl", fmt.Sprintf(`
		engine { state = "sonde.state" }
		target "web" {
		  for_each = toset([for i in range(%d) : tostring(i)])
		  process {
		    command = ["sh", "-c", "echo $$$$ >>${each.key}.pid; while :; do echo noise; sleep 0.01; done"]
		    adopt   = true
		  }
		  probe "readiness" {
		    exec { command = ["test", "-e", "${each.key}.pid"] }
		    period  = "20ms"
		    timeout = "10s"
		  }
		  probe "liveness" {
		    exec { command = ["true"] }
		    period  = "20ms"
		    timeout = "10s"
		  }
		}`, targets))
	for range kills {
		restart()
		testsync.Until(t, "all targets to be ready", func() bool {
			return strings.Count(e.get("/v1/targets"), `"restarts":0},"started":true,"ready":true,"live":true,"state":"ready"`) == targets
		})
		if err := e.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-e.exited
	}
	var pids []int
	for i := range targets {
		pid, err := strconv.Atoi(e.text(strconv.Itoa(i) + ".pid"))
		if err != nil {
			t.Fatalf("process %d was started again: %v", i, err)
		}
		pids = append(pids, pid)
	}
	text, err := os.ReadFile(log.Name())
	if err != nil || strings.Contains(string(text), `"verdict":"failing","previous":"passing"`) || strings.Count(string(text), `"msg":"instance started"`) != targets {
		t.Errorf("%v; the log is %s", err, text)
	}
	e.write(t, "config.hcl", withoutTargets) // ends the processes
	restart()
	for _, pid := range pids {
		testsync.Until(t, "the processes to end", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	}
	if code := e.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// startAgain starts the engine with another log, and waits until it listens.
func (e *engineProcess) startAgain(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(e.dir, "address")); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(e.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	e.exited = make(chan struct{})
	e.start(t, func(c *exec.Cmd) { c.Stderr = log })
	e.waitListening(t)
}

// guardOf returns the process ID of a process's guard, which is its parent.
func guardOf(pid int) (int, error) {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "\nPPid:\t")
	parent, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(parent)
}

// connections returns the number of unix sockets with a name: a listener and its connections.
func connections(name string) int {
	sockets, _ := os.ReadFile("/proc/net/unix")
	return strings.Count(string(sockets), name)
}

func TestAnEngineThatIsStoppedWhileItTakesOverLeavesTheProcessRunning(t *testing.T) {
	e := &engineProcess{dir: t.TempDir()}
	e.write(t, "config.hcl", `
		engine { state = "sonde.state" }
		target "web" {
		  process {
		    command = ["sh", "-c", "trap 'echo >>terms; exit' TERM; echo $$$$ >>pids; while :; do sleep 0.01; done"]
		    adopt   = true
		  }
		}`)
	e.startAgain(t)
	testsync.Until(t, "the process", func() bool { return e.text("pids") != "" })
	if code := e.end(t, syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	sockets := e.guardFiles(".sock")
	if len(sockets) != 1 {
		t.Fatalf("sockets %v", sockets)
	}
	pid, err := strconv.Atoi(e.text("pids"))
	if err != nil {
		t.Fatal(err)
	}
	guard, err := guardOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(guard, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(guard, syscall.SIGCONT) }()
	e.startAgain(t)
	testsync.Until(t, "the engine to connect", func() bool { return connections(filepath.Base(sockets[0])) > 1 })
	if err := e.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "the engine to stop", func() bool { return strings.Contains(e.text("log"), `"signal":"terminated"`) })
	if err := syscall.Kill(guard, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	<-e.exited
	e.startAgain(t)
	testsync.Until(t, "the process to be taken over", func() bool {
		return strings.Contains(e.get("/v1/targets"), `"id":"`+e.text("pids")+"-")
	})
	e.write(t, "config.hcl", withoutTargets) // ends the process
	if err := e.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "the end of the process", func() bool { _, err := os.Stat(filepath.Join("/proc", e.text("pids"))); return err != nil })
	if terms, err := os.ReadFile(filepath.Join(e.dir, "terms")); string(terms) != "\n" {
		t.Errorf("the process was asked to exit %d times, want 1; %v", len(terms), err)
	}
}

func TestAProcessThatIsNotTakenOverAtFirstStaysReady(t *testing.T) {
	tier.CI(t)
	e := &engineProcess{dir: t.TempDir()}
	e.write(t, "config.hcl", `
		engine { state = "sonde.state" }
		target "web" {
		  process {
		    command = ["sleep", "600"]
		    adopt   = true
		  }
		  probe "readiness" {
		    exec { command = ["true"] }
		    period            = "100ms"
		    success_threshold = 2
		  }
		}`)
	isReady := func() bool {
		return strings.Contains(e.get("/v1/targets"), `"restarts":0},"started":true,"ready":true,"live":true,"state":"ready"`)
	}
	kill := func() {
		t.Helper()
		if err := e.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-e.exited
	}
	e.startAgain(t)
	testsync.Until(t, "the process to be ready, and in the file", func() bool {
		return isReady() && strings.Contains(e.text("sonde.state"), `"instance":"`)
	})
	kill()
	descriptions := e.guardFiles(".json")
	if len(descriptions) != 1 {
		t.Fatalf("descriptions %v", descriptions)
	}
	text, err := os.ReadFile(descriptions[0])
	if err == nil {
		err = os.Truncate(descriptions[0], 0) // as if it could not be read
	}
	if err != nil {
		t.Fatal(err)
	}
	e.startAgain(t)
	testsync.Until(t, "a try to take over the process", func() bool {
		if !isReady() {
			t.Fatalf("the target is not ready: %s\n%s", e.get("/v1/targets"), e.text("log"))
		}
		return strings.Contains(e.text("log"), "instance not taken over, retrying")
	})
	if err := os.WriteFile(descriptions[0], text, 0o600); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "the process to be taken over", func() bool {
		if !isReady() {
			t.Fatalf("the target is not ready: %s\n%s", e.get("/v1/targets"), e.text("log"))
		}
		return strings.Contains(e.text("log"), "instance goes on")
	})
	e.write(t, "config.hcl", withoutTargets) // ends the process
	if err := e.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "the end of the process", func() bool { return len(e.guardFiles(".json")) == 0 })
}

// If a process crashes while the engine is short of descriptors, it is started as soon as descriptors are available, and its
// back-off and restart count are those of a single crash.
func TestAShortageOfTheEngineIsNoCrashOfTheProcess(t *testing.T) {
	tier.Slow(t)
	e := &engineProcess{dir: t.TempDir()}
	e.write(t, "config.hcl", `
		target "web" {
		  process { command = ["sh", "-c", "echo $$$$ >pid; exec sleep 600"] }
		}`)
	e.startAgain(t)
	crash := func() {
		t.Helper()
		testsync.Until(t, "the process", func() bool { return e.text("pid") != "" })
		pid, err := strconv.Atoi(e.text("pid"))
		if err == nil {
			err = os.Remove(filepath.Join(e.dir, "pid"))
		}
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := e.get("/v1/targets"); !strings.HasPrefix(got, "200") { // on a kept-alive connection
		t.Fatal(got)
	}
	testsync.Until(t, "the process", func() bool { return e.text("pid") != "" })
	restore := faulttest.DescriptorsOf(t, e.Process.Pid, 3)
	crash()
	testsync.Until(t, "the reason", func() bool {
		return strings.Contains(e.get("/v1/targets"), `"reason":"engine.resources","detail":"retrying within 20s: `)
	})
	restore()
	testsync.Until(t, "a restart", func() bool { return strings.Contains(e.get("/v1/targets"), `"restarts":1`) })
	crash()
	testsync.Until(t, "the second crash", func() bool {
		return strings.Count(e.text("log"), `"msg":"instance exited`) == 2
	})
	if log := e.text("log"); !strings.Contains(log, `"restarts":1,"back_off":"10s"`) || !strings.Contains(log, `"msg":"instance not started, retrying"`) {
		t.Errorf("the second crash is not the second exit:\n%s", log)
	}
}
