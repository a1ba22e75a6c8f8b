package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// adoptConfig has a process that keeps running when its engine is killed. Its probe fails while the file "dead" exists.
const adoptConfig = `
engine {
  state = "disk/sonde.state"
}
target "web" {
  process {
    command = ["sh", "-c", "trap 'echo >>terms; exit' TERM; echo $$$$ >>pids; while :; do sleep 0.01; done"]
    adopt   = true
  }
  back_off {
    initial = "100ms"
    max     = "100ms"
  }
  probe "liveness" {
    exec { command = ["test", "!", "-e", "dead"] }
    period            = "100ms"
    timeout           = "10s"
    failure_threshold = 1
  }
}`

// onDisk starts an engine whose state file is on its own disk, which prepare mounts. It returns nil in the parent process of
// the test.
func onDisk(t *testing.T, prepare func(disk string)) *engineProcess {
	t.Helper()
	if !faulttest.InNamespaces(t) {
		return nil
	}
	faulttest.SmallDisk(t, "/run", "mode=0755")
	e := &engineProcess{dir: t.TempDir()}
	disk := filepath.Join(e.dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	prepare(disk)
	if err := os.Chmod(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	e.write(t, "config.hcl", adoptConfig)
	t.Cleanup(func() {
		for _, pid := range e.pids() {
			if guard, err := guardOf(pid); err == nil {
				_ = syscall.Kill(guard, syscall.SIGKILL) // which also ends the process
			}
		}
	})
	e.startAgain(t)
	testsync.Until(t, "the process", func() bool { return len(e.pids()) == 1 })
	return e
}

// pids returns the process IDs of all processes that were started.
func (e *engineProcess) pids() (pids []int) {
	for _, field := range strings.Fields(e.text("pids")) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (e *engineProcess) isReady() bool {
	targets := e.get("/v1/targets")
	return strings.Contains(targets, `"started":true,"ready":true`) && strings.Contains(targets, `"state":"ready"`)
}

func (e *engineProcess) awaitReady(t *testing.T) {
	t.Helper()
	testsync.Until(t, "the process to be ready", e.isReady)
}

// killTarget kills the first process that was started, and waits for the next one.
func (e *engineProcess) killTarget(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(e.pids()[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "a restart", func() bool { return len(e.pids()) > 1 })
	e.awaitReady(t)
}

// hasStopped reports whether no thread of the engine runs any more. The kernel keeps a process while one of its threads waits
// for a disk. Its state is then Z, since its first thread never waits.
func (e *engineProcess) hasStopped() bool {
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(e.Process.Pid), "stat"))
	_, rest, _ := strings.Cut(string(text), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state == "Z" || state == ""
}

func TestADiskThatHangsKeepsNoProcessFromItsRestart(t *testing.T) {
	var disk *faulttest.Disk
	e := onDisk(t, func(dir string) { disk = faulttest.NewDisk(t, dir) })
	if e == nil {
		return
	}
	e.awaitReady(t)
	disk.Hang()
	e.write(t, "dead", "")
	testsync.Until(t, "a restart", func() bool { return len(e.pids()) > 1 })
	if err := os.Remove(filepath.Join(e.dir, "dead")); err != nil {
		t.Fatal(err)
	}
	// The probe may have failed since the restart, or be about to fail. The next instance is then ended as well.
	before := e.successes()
	testsync.Until(t, "two attempts that succeed", func() bool { return e.successes() >= before+2 })
	e.awaitReady(t)
	if err := e.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "the engine to stop", e.hasStopped)
	if log := e.text("log"); !strings.Contains(log, "state not saved: the disk does not respond") || !strings.Contains(log, "engine stopped") {
		t.Errorf("the log is %s", log)
	}
	disk.Resume()
	<-e.exited
	if code := e.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	pids := e.pids()
	e.startAgain(t)
	defer func() {
		if t.Failed() {
			t.Logf("the log is %s", e.text("log"))
		}
	}()
	testsync.Until(t, "the process to be taken over", func() bool { return strings.Contains(e.text("log"), "instance goes on") })
	if after := e.pids(); len(after) != len(pids) {
		t.Errorf("the processes are %v, were %v", after, pids)
	}
}

// successes returns the number of successful attempts of liveness probes.
func (e *engineProcess) successes() (n int) {
	m := succeeded.FindStringSubmatch(e.get("/metrics"))
	if m != nil {
		n, _ = strconv.Atoi(m[1]) // the pattern has digits only
	}
	return n
}

var succeeded = regexp.MustCompile(`sonde_attempts_total\{[^}]*kind="liveness",outcome="success"\} (\d+)`)

// refusals make the file system mounted on a directory refuse writes, in different ways.
var refusals = map[string]func(t *testing.T, dir string) (refuse func()){
	"full": func(t *testing.T, dir string) func() {
		faulttest.SmallDisk(t, dir, "mode=0755,size=64k")
		return func() { faulttest.Fill(t, dir) }
	},
	"read-only": func(t *testing.T, dir string) func() { return faulttest.NewDisk(t, dir).Fail },
}

func TestADiskThatRefusesWritesKeepsNoProcessFromItsRestart(t *testing.T) {
	for name, mount := range refusals {
		t.Run(name, func(t *testing.T) {
			var refuse func()
			e := onDisk(t, func(disk string) { refuse = mount(t, disk) })
			if e == nil {
				return
			}
			e.awaitReady(t)
			refuse()
			e.killTarget(t)
			if err := e.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-e.exited
			e.startAgain(t)
			testsync.Until(t, "the process to be taken over", func() bool {
				return strings.Contains(e.get("/v1/targets"), `"id":"`+strconv.Itoa(e.pids()[1])+"-")
			})
			if pids := e.pids(); len(pids) != 2 {
				t.Errorf("the processes are %v", pids)
			}
		})
	}
}

func TestWithoutRoomInTheRuntimeDirectoryProcessesEndWithTheEngine(t *testing.T) {
	for name, mount := range refusals {
		t.Run(name, func(t *testing.T) {
			var refuse func()
			e := onDisk(t, func(string) { refuse = mount(t, "/run") })
			if e == nil {
				return
			}
			e.awaitReady(t)
			refuse()
			e.killTarget(t)
			testsync.Until(t, "a warning", func() bool {
				return strings.Contains(e.text("log"), "process ends with the engine despite adopt")
			})
			if code := e.end(t, syscall.SIGTERM); code != 0 {
				t.Errorf("exit code %d", code)
			}
			pid := e.pids()[1]
			testsync.Until(t, "the end of the process", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
			if _, err := os.Stat(filepath.Join(e.dir, "terms")); err != nil {
				t.Errorf("the process was not asked to exit: %v", err)
			}
		})
	}
}

func TestASecondEngineDoesNotTakeOverProcessesOfAMovedStateFile(t *testing.T) {
	tier.Slow(t)
	e := onDisk(t, func(string) {})
	if e == nil {
		return
	}
	state := filepath.Join(e.dir, "disk", "sonde.state")
	if err := os.Rename(state, state+".old"); err != nil {
		t.Fatal(err)
	}
	second := exec.Command("sonde", "run", "--listen", "")
	second.Dir, second.Env = e.dir, environ()
	if out, err := second.CombinedOutput(); second.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "another engine has") {
		t.Errorf("%v: %s", err, out)
	}
	if code := e.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if log := e.text("log"); e.size("disk/sonde.state") == 0 || strings.Contains(log, "was replaced by another file") {
		t.Errorf("the last write is lost, the log is %s", log)
	}
	if err := syscall.Kill(e.pids()[0], 0); err != nil {
		t.Errorf("the process has ended: %v", err)
	}
}

// deadConfig returns a configuration with a target and a state file.
func deadConfig(state string) string {
	return "engine { state = \"" + state + "\" }\ntarget \"web\" {\n  probe \"readiness\" {\n    exec { command = [\"true\"] }\n    timeout = \"10s\"\n  }\n}\n"
}

// untilItWaits waits until a thread of the engine waits for a disk.
func (e *engineProcess) untilItWaits(t *testing.T) {
	t.Helper()
	testsync.Until(t, "the engine to read the disk", func() bool {
		tasks, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(e.Process.Pid), "task", "*", "wchan"))
		for _, file := range tasks {
			if where, _ := os.ReadFile(file); strings.Contains(string(where), "fuse") || strings.Contains(string(where), "request_wait") {
				return true
			}
		}
		return false
	})
}

// TestADeadDiskKeepsNoEngineFromItsEnd stops an engine while it reads from a disk that never responds, at its start and at run
// time.
func TestADeadDiskKeepsNoEngineFromItsEnd(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InNamespaces(t) {
		return
	}
	faulttest.SmallDisk(t, "/run", "mode=0755")
	for name, test := range map[string]struct {
		config string
		pods   []string
		starts bool
	}{
		"its state":               {config: deadConfig("disk/sonde.state")},
		"its pods":                {config: "engine {}", pods: []string{"--pods", "disk"}},
		"its pods, while it runs": {config: "engine {}", pods: []string{"--pods", "disk"}, starts: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := &engineProcess{dir: t.TempDir(), exited: make(chan struct{})}
			disk := filepath.Join(e.dir, "disk")
			if err := os.Mkdir(disk, 0o755); err != nil {
				t.Fatal(err)
			}
			e.write(t, "config.hcl", test.config)
			if !test.starts {
				faulttest.DeadDisk(t, disk)
			}
			e.start(t, func(c *exec.Cmd) { c.Args = append(c.Args, test.pods...) })
			if test.starts {
				e.waitListening(t)
				faulttest.DeadDisk(t, disk)
			}
			e.untilItWaits(t)
			if err := e.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			testsync.Until(t, "the engine to stop", e.hasStopped)
		})
	}
}

func TestADeadDiskOfTheStateKeepsNoReloadFromItsEnd(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InNamespaces(t) {
		return
	}
	faulttest.SmallDisk(t, "/run", "mode=0755")
	e := &engineProcess{dir: t.TempDir()}
	disk := filepath.Join(e.dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	config := deadConfig("disk/sonde.state")
	e.write(t, "config.hcl", config)
	e.startAgain(t)
	e.awaitReady(t)
	faulttest.DeadDisk(t, disk)
	e.untilItWaits(t)
	e.write(t, "config.hcl", config+strings.ReplaceAll(config[strings.Index(config, "target"):], "web", "other"))
	if err := e.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "the reload", func() bool { return strings.HasPrefix(e.get("/v1/targets/other"), "200") })
}
