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

	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestProcessesAndVerdictsOutliveTwentyKillsOfTheEngine(t *testing.T) {
	const kills, targets = 20, 5
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
			return strings.Count(e.get("/v1/targets"), `"restarts":0},"started":true,"ready":true,"live":true`) == targets
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
	if err != nil || strings.Contains(string(text), `"verdict":"failing"`) || strings.Count(string(text), `"msg":"instance started"`) != targets {
		t.Errorf("%v; the log is %s", err, text)
	}
	e.write(t, "config.hcl", `engine { state = "sonde.state" }`) // ends the processes
	restart()
	for _, pid := range pids {
		testsync.Until(t, "the processes to end", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	}
	if code := e.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
