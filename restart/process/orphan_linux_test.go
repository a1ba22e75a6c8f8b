package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	cgroupfs "github.com/sonde-probe/sonde/internal/cgroup"
	"github.com/sonde-probe/sonde/internal/reexec"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// Each test is run with a cgroup, where one can be made, and without.
func withAndWithoutCgroup(t *testing.T, test func(t *testing.T, noCgroup bool)) {
	t.Run("cgroup", func(t *testing.T) { test(t, false) })
	t.Run("no cgroup", func(t *testing.T) { test(t, true) })
}

func TestNoDescendantSurvivesARequestedEnd(t *testing.T) {
	tier.Slow(t)
	withAndWithoutCgroup(t, func(t *testing.T, noCgroup bool) {
		config, pids := family(t, `wait`)
		config.NoCgroup = noCgroup
		l := begin(t, config)
		l.await(t, "ready")
		l.end <- 10 * time.Millisecond
		if exit := l.exit(t); exit.Code != 137 {
			t.Errorf("got %+v", exit)
		}
		mustBeGone(t, pids())
	})
}

func TestNoDescendantSurvivesTheCommandsExit(t *testing.T) {
	tier.Slow(t)
	withAndWithoutCgroup(t, func(t *testing.T, noCgroup bool) {
		config, pids := family(t, `exit 5`)
		config.NoCgroup = noCgroup
		if exit := begin(t, config).exit(t); exit.Code != 5 {
			t.Errorf("got %+v", exit)
		}
		mustBeGone(t, pids())
	})
}

func TestNoDescendantSurvivesACancelledContext(t *testing.T) {
	withAndWithoutCgroup(t, func(t *testing.T, noCgroup bool) {
		config, pids := family(t, `wait`)
		config.NoCgroup = noCgroup
		l := begin(t, config)
		l.await(t, "ready")
		l.cancel()
		l.exit(t)
		mustBeGone(t, pids())
	})
}

func TestNoDescendantSurvivesAKilledEngine(t *testing.T) {
	tier.Slow(t)
	withAndWithoutCgroup(t, func(t *testing.T, noCgroup bool) {
		config, pids := family(t, `echo >>"$FILE"; wait`)
		engine := exec.Command(reexec.Executable, append([]string{engineRole, strconv.FormatBool(noCgroup)}, config.Command...)...)
		ready := filepath.Join(t.TempDir(), "ready")
		engine.Args[len(engine.Args)-1] = strings.Replace(config.Command[2], "echo ready", "echo ready >'"+ready+"'", 1)
		engine.Stderr = os.Stderr
		if err := engine.Start(); err != nil {
			t.Fatal(err)
		}
		testsync.Until(t, "the command's family", func() bool { _, err := os.Stat(ready); return err == nil })
		guard := parentOf(pids()[0])
		_ = engine.Process.Kill()
		_ = engine.Wait()
		awaitGone(t, append(pids(), guard))
	})
}

func TestNoDescendantSurvivesAKilledGuard(t *testing.T) {
	config, pids := family(t, `wait`)
	l := begin(t, config)
	l.await(t, "ready")
	if len(cgroupsOf(parentOf(l.pid(t)))) == 0 {
		t.Skip("no cgroup can be made here, without one only the command's group is killed")
	}
	_ = syscall.Kill(parentOf(l.pid(t)), syscall.SIGKILL)
	if exit := l.exit(t); exit.Code != 137 || exit.Err != nil {
		t.Errorf("got %+v", exit)
	}
	awaitGone(t, pids())
}

func TestCommandDiesWithItsGuardWithoutACgroupToo(t *testing.T) {
	needLinux(t)
	config := deaf()
	config.NoCgroup = true
	l := begin(t, config)
	l.await(t, "ready")
	_ = syscall.Kill(parentOf(l.pid(t)), syscall.SIGKILL)
	if exit := l.exit(t); exit.Code != 137 || exit.Err != nil {
		t.Errorf("got %+v", exit)
	}
	awaitGone(t, []int{l.pid(t)})
}

func TestGuardSurvivesTheSignalsThatEndEngines(t *testing.T) {
	needLinux(t)
	l := begin(t, sh(`echo ready; read x; sleep 600`))
	l.await(t, "ready")
	guard := parentOf(l.pid(t))
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1} {
		if err := syscall.Kill(guard, s); err != nil {
			t.Fatal(err)
		}
	}
	l.end <- testsync.Timeout
	if exit := l.exit(t); exit.Code != 143 {
		t.Errorf("got %+v", exit)
	}
}

func TestOrphansAreReapedWhileTheCommandRuns(t *testing.T) {
	needLinux(t)
	l := begin(t, sh(`for i in 1 2 3 4 5; do sh -c 'sh -c "sleep 0.01; echo orphan" &'; done; sleep 600`))
	testsync.Until(t, "five orphans", func() bool { return strings.Count(l.log.String(), "orphan") == 5 })
	guard := parentOf(l.pid(t))
	testsync.Until(t, "their reaping", func() bool {
		text, _ := os.ReadFile("/proc/" + strconv.Itoa(guard) + "/task/" + strconv.Itoa(guard) + "/children")
		return len(strings.Fields(string(text))) <= 1
	})
	l.cancel()
	l.exit(t)
}

func TestCgroupsAreRemoved(t *testing.T) {
	needLinux(t)
	l := begin(t, sh(`echo ready; sleep 600`))
	l.await(t, "ready")
	guard := parentOf(l.pid(t))
	if len(cgroupsOf(guard)) == 0 {
		t.Skip("no cgroup can be made here")
	}
	l.cancel()
	l.exit(t)
	if left := cgroupsOf(guard); len(left) > 0 {
		t.Errorf("cgroups %v are left", left)
	}
}

// mustBeGone fails when a process exists.
func mustBeGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is running", pid)
		}
	}
}

// awaitGone waits until processes whose parents are gone have ended.
func awaitGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		testsync.Until(t, "the end of process "+strconv.Itoa(pid), func() bool { return !alive(pid) })
	}
}

// alive is false for a zombie: the test machine's init may be slow to reap.
func alive(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func parentOf(pid int) int {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	_, line, _ := strings.Cut(string(text), "\nPPid:\t")
	line, _, _ = strings.Cut(line, "\n")
	parent, _ := strconv.Atoi(line)
	return parent
}

// cgroupsOf returns the control groups that a guard has made: other tests run at the same time.
func cgroupsOf(guard int) []string {
	own := cgroupfs.Own()
	if own == "" {
		return nil
	}
	dirs, _ := filepath.Glob(filepath.Join(own, "sonde-"+strconv.Itoa(guard)+"-*"))
	return dirs
}

func TestCommandThatCannotBeKilledIsLeftToItsGuard(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	d := driver(t, sh(`trap '' TERM; echo >'`+ready+`'; while :; do sleep 0.05; done`))
	d.killTimeout = time.Millisecond
	l := run(t, d)
	awaitFile(t, ready)
	guard := parentOf(l.pid(t))
	if err := syscall.Kill(guard, syscall.SIGSTOP); err != nil { // a stopped guard kills no process
		t.Fatal(err)
	}
	l.cancel()
	if exit := l.exit(t); exit.Code != 137 || exit.Err != nil {
		t.Errorf("got %+v", exit)
	}
	if !alive(l.pid(t)) {
		t.Error("the command is dead, so this test shows nothing")
	}
	if err := syscall.Kill(guard, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, []int{l.pid(t), guard})
}
