package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	cgroupfs "github.com/sonde-probe/sonde/internal/cgroup"
	"github.com/sonde-probe/sonde/internal/reexec"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// withAndWithoutCgroup runs a test with a cgroup, where one can be created, and without.
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

// awaitGone waits until orphaned processes have exited.
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

// cgroupsOf returns the control groups that a guard has created: other tests run at the same time.
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
	thaw := freeze(t, guard) // so that it kills no process
	l.cancel()
	if exit := l.exit(t); exit.Code != 137 || exit.Err != nil {
		t.Errorf("got %+v", exit)
	}
	if !alive(l.pid(t)) {
		t.Error("the command is dead, so this test shows nothing")
	}
	thaw()
	awaitGone(t, []int{l.pid(t), guard})
}

// freeze stops all threads of a process until thaw is called. It works like a debugger, so that SIGCONT does not
// continue them.
func freeze(t *testing.T, pid int) (thaw func()) {
	t.Helper()
	frozen, release, released := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(released)
		runtime.LockOSThread() // never unlocked: the exit of the thread would detach the process
		tasks, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
		for _, task := range tasks {
			thread, _ := strconv.Atoi(task.Name())
			if err = errors.Join(err, syscall.PtraceAttach(thread)); err == nil {
				_, err = syscall.Wait4(thread, nil, syscall.WALL, nil)
			}
		}
		frozen <- err
		<-release
		for _, task := range tasks {
			thread, _ := strconv.Atoi(task.Name())
			_ = syscall.PtraceDetach(thread)
		}
		_ = syscall.Kill(pid, syscall.SIGCONT) // after the SIGSTOP that attached it
	}()
	err := <-frozen
	thaw = sync.OnceFunc(func() { close(release); <-released })
	t.Cleanup(thaw)
	if err != nil {
		thaw()
		tier.Lacks(t, "no process can be traced: "+err.Error())
	}
	return thaw
}

// TestAStoppedGuardIsContinuedToEndItsCommand stops the guard before each way to end the command, and once more after that.
func TestAStoppedGuardIsContinuedToEndItsCommand(t *testing.T) {
	for name, end := range map[string]func(l *running){
		"a request":             func(l *running) { l.end <- time.Minute },
		"the end of the engine": func(l *running) { l.cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			l := run(t, driver(t, sh(`exec sleep 600`)))
			guard := parentOf(l.pid(t))
			awaitStopped(t, guard)
			end(l)
			if exit := l.exit(t); exit.Code < 128 || exit.Err != nil {
				t.Errorf("got %+v", exit)
			}
			awaitGone(t, []int{l.pid(t), guard})
		})
	}
}

// TestAGuardThatIsStoppedDuringTheGracePeriodIsContinued checks that the guard is continued at the end of the grace
// period.
func TestAGuardThatIsStoppedDuringTheGracePeriodIsContinued(t *testing.T) {
	dir := t.TempDir()
	d := driver(t, sh(`cd '`+dir+`'; trap 'echo >asked' TERM; echo >ready; while :; do sleep 0.05; done`))
	d.killTimeout = time.Millisecond
	testsync.Longer(t, "a stopped guard", time.Second, time.Minute, func(grace time.Duration) bool {
		_ = os.Remove(filepath.Join(dir, "asked"))
		l := run(t, d)
		guard := parentOf(l.pid(t))
		awaitFile(t, filepath.Join(dir, "ready"))
		l.end <- grace
		awaitFile(t, filepath.Join(dir, "asked"))
		stopped := syscall.Kill(guard, syscall.SIGSTOP) == nil
		if exit := l.exit(t); exit.Code != 137 || exit.Err != nil {
			t.Errorf("got %+v", exit)
		}
		awaitGone(t, []int{l.pid(t), guard})
		return stopped
	})
}

// awaitStopped stops a process.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "the process to stop", func() bool {
		return strings.Contains(text(filepath.Join("/proc", strconv.Itoa(pid), "stat")), ") T ")
	})
}
