package process

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/logfile"
	"github.com/sonde-probe/sonde/internal/shortage"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process/internal/guard"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// adoptable returns a driver whose instances outlive its Run.
func adoptable(t *testing.T, dir, script string, log *testsync.Buffer) *Driver {
	t.Helper()
	guards := filepath.Join(dir, "guards")
	survivor, _ := survivors(t, guards).Of("web")
	d, err := New(Config{
		Target: "web", Command: []string{"sh", "-c", script}, Adopt: true, AdoptDir: guards, Survivor: survivor, Dir: dir,
		Logger: slog.New(slog.NewTextHandler(log, nil)), LinesPerSecond: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	d.killTimeout = testsync.Timeout
	return d
}

func survivors(t *testing.T, dir string) Survivors {
	t.Helper()
	found, err := readSurvivors(dir)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// attached retries while the guard of a survivor is slow to accept the engine, as the supervisor does.
func attached(ctx context.Context, try func() error) (err error) {
	for end := time.Now().Add(testsync.Timeout); ; <-time.After(time.Millisecond) {
		if err = try(); !errors.Is(err, restart.ErrNotTakenOver) || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
	}
}

// endUnwanted terminates a survivor whose target is not configured. It retries while the guard is slow.
func endUnwanted(ctx context.Context, s Survivor, guards string, log *slog.Logger) error {
	return attached(ctx, func() error { return s.End(ctx, guards, log, unwanted) })
}

// runAttached is Run, retried while the guard of a survivor is slow to accept the engine.
func runAttached(ctx context.Context, d *Driver, began func(restart.Begun), end <-chan time.Duration) (exit restart.Exit) {
	_ = attached(ctx, func() error { exit = d.Run(ctx, began, end); return exit.Err })
	return exit
}

// attendance is one call of Run.
type attendance struct {
	release context.CancelCauseFunc
	end     chan time.Duration
	id      string
	exit    <-chan restart.Exit
}

// attend calls Run, and returns when the instance is running.
func attend(t *testing.T, d *Driver) *attendance {
	t.Helper()
	ctx, release := context.WithCancelCause(context.Background())
	t.Cleanup(func() { release(nil) })
	r := &attendance{release: release, end: make(chan time.Duration, 1)}
	r.id, r.exit = beginRun(t, func(began func(restart.Begun)) restart.Exit { return runAttached(ctx, d, began, r.end) })
	return r
}

func (r *attendance) leave(t *testing.T) {
	t.Helper()
	r.release(restart.ErrReleased)
	if exit := testsync.Receive(t, "the release", r.exit); exit.Err != restart.ErrReleased {
		t.Fatalf("the exit is %+v", exit)
	}
}

// takenOver calls Run of the next engine, and checks that the instance keeps running. Its command writes its process ID
// to the file pids.
func (r *attendance) takenOver(t *testing.T, d *Driver) *attendance {
	t.Helper()
	next := attend(t, d)
	if pids := text(filepath.Join(d.config.Dir, "pids")); next.id != r.id || strings.Contains(pids, "\n") {
		t.Errorf("the instance is %s, want %s; the processes are %q", next.id, r.id, pids)
	}
	return next
}

func text(name string) string {
	b, _ := os.ReadFile(name)
	return strings.TrimSpace(string(b))
}

func TestAnInstanceOutlivesItsRunAndIsTakenOver(t *testing.T) {
	tier.Slow(t)
	dir, log := t.TempDir(), new(testsync.Buffer)
	script := `echo $$$$ >>pids; trap 'echo bye; exit 3' TERM; while :; do echo ` + strings.Repeat("x", 500) + `; echo >>lines; sleep 0.001; done`
	first := attend(t, adoptable(t, dir, script, log))
	first.leave(t)
	size := func() int { b, _ := os.ReadFile(filepath.Join(dir, "lines")); return len(b) }
	before := size()
	testsync.Until(t, "more output than pipes hold", func() bool { return size() > before+500 })

	d := adoptable(t, dir, script, log)
	if d.Resume("another") || !d.Resume(first.id) {
		t.Error("Resume does not know the instance")
	}
	second := first.takenOver(t, d)
	second.leave(t)
	third := second.takenOver(t, adoptable(t, dir, script, log))
	third.end <- 20 * time.Second
	if exit := testsync.Receive(t, "the end", third.exit); exit.Code != 3 || !strings.Contains(exit.Output, "bye") {
		t.Errorf("the exit is %+v", exit)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "guards")); len(left) != 0 {
		t.Errorf("files are left: %v", left)
	}
}

func TestAnExitWithoutAnEngineIsReportedToTheNext(t *testing.T) {
	dir, log := t.TempDir(), new(testsync.Buffer)
	script := `echo $$$$ >pid; until test -e stop; do sleep 0.01; done; echo over; exit 7`
	first := attend(t, adoptable(t, dir, script, log))
	testsync.Until(t, "the process", func() bool { return text(filepath.Join(dir, "pid")) != "" })
	pid, err := strconv.Atoi(text(filepath.Join(dir, "pid")))
	if err != nil {
		t.Fatal(err)
	}
	first.leave(t)
	if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "the end of the process", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	second := attend(t, adoptable(t, dir, script, log))
	if exit := testsync.Receive(t, "the end", second.exit); second.id != first.id || exit.Code != 7 || exit.Err != nil {
		t.Errorf("instance %s has the exit %+v, want that of %s", second.id, exit, first.id)
	}
}

func TestAnInstanceOfAnotherConfigurationIsEndedFirst(t *testing.T) {
	dir, log := t.TempDir(), new(testsync.Buffer)
	first := attend(t, adoptable(t, dir, `echo $$$$ >first; trap 'rm first; exit' TERM; while :; do sleep 0.01; done`, log))
	testsync.Until(t, "the process", func() bool { return text(filepath.Join(dir, "first")) != "" })
	first.leave(t)
	d := adoptable(t, dir, `test -e first && exit 1; echo $$$$ >second; exec sleep 600`, log)
	if d.Resume(first.id) {
		t.Error("an instance of another configuration is resumed")
	}
	second := attend(t, d)
	testsync.Until(t, "the second process", func() bool { return text(filepath.Join(dir, "second")) != "" })
	if second.id == first.id || text(filepath.Join(dir, "first")) != "" {
		t.Errorf("the instance is %s, and %q is there", second.id, text(filepath.Join(dir, "first")))
	}
	second.release(nil)
	<-second.exit
}

func TestUnwantedSurvivorsAreEnded(t *testing.T) {
	dir, log := t.TempDir(), new(testsync.Buffer)
	first := attend(t, adoptable(t, dir, `exec sleep 600`, log))
	first.leave(t)
	guards := filepath.Join(dir, "guards")
	all := survivors(t, guards)
	s, ok := all.Of("web")
	if len(all) != 1 || !ok || s.Target != "web" || s.ID != first.id || s.Err != nil {
		t.Fatalf("survivors are %+v", all)
	}
	if err := s.End(t.Context(), guards, nil, func(target string) bool { return target == "web" }); err != nil || len(survivors(t, guards)) != 1 {
		t.Errorf("a wanted survivor was ended: %v", err)
	}
	for range 2 { // the second call finds that it has ended
		if err := endUnwanted(t.Context(), s, guards, nil); err != nil {
			t.Error(err)
		}
	}
	if left := survivors(t, guards); len(left) != 0 {
		t.Errorf("survivors are %+v", left)
	}
	if err := syscall.Kill(pidOf(t, first.id), 0); err != syscall.ESRCH {
		t.Errorf("the process is there: %v", err)
	}
}

func unwanted(string) bool { return false }

// pidOf returns the process ID of an instance.
func pidOf(t *testing.T, id string) int {
	t.Helper()
	text, _, _ := strings.Cut(id, "-")
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestTheEndOfASurvivorWhoseGuardDoesNotAnswerIsAnError(t *testing.T) {
	tier.Slow(t)
	t.Parallel() // it takes as long as attachTimeout
	dir, log := t.TempDir(), new(testsync.Buffer)
	first := attend(t, adoptable(t, dir, `exec sleep 600`, log))
	first.leave(t)
	guard := parentOf(pidOf(t, first.id))
	if err := syscall.Kill(guard, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "the guard to stop", func() bool {
		return strings.Contains(text(filepath.Join("/proc", strconv.Itoa(guard), "stat")), ") T ")
	})
	guards := filepath.Join(dir, "guards")
	s, _ := survivors(t, guards).Of("web")
	if err := s.End(t.Context(), guards, nil, unwanted); err == nil || !strings.Contains(err.Error(), first.id) {
		t.Errorf("End() = %v, want an error that names the instance", err)
	}
	if err := syscall.Kill(guard, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := endUnwanted(t.Context(), s, guards, nil); err != nil {
		t.Error(err)
	}
	awaitGone(t, []int{pidOf(t, first.id), guard})
}

// A shortage in the engine must neither remove the files that lead to a running process, nor start a second process.
func TestALackOfDescriptorsLeavesASurvivorToTheNextTry(t *testing.T) {
	dir, log := t.TempDir(), new(testsync.Buffer)
	script := `echo $$$$ >>pids; exec sleep 600`
	first := attend(t, adoptable(t, dir, script, log))
	first.leave(t)
	d := adoptable(t, dir, script, log)
	restore := faulttest.NoDescriptors(t)
	_, err := readSurvivors(d.config.AdoptDir)
	exit := d.Run(t.Context(), func(b restart.Begun) { t.Errorf("instance %s began", b.ID) }, nil)
	restore()
	if !shortage.Is(err) || !shortage.Is(exit.Err) || !errors.Is(exit.Err, restart.ErrNotTakenOver) {
		t.Errorf("without descriptors the survivors are read with %v, and the exit is %v", err, exit.Err)
	}
	second := first.takenOver(t, d)
	second.release(nil)
	<-second.exit
}

func TestADescriptionThatCannotBeReadIsNotThatOfADeadGuard(t *testing.T) {
	dir, log := t.TempDir(), new(testsync.Buffer)
	script := `echo $$$$ >>pids; exec sleep 600`
	first := attend(t, adoptable(t, dir, script, log))
	first.leave(t)
	d := adoptable(t, dir, script, log)
	path := filepath.Join(d.config.AdoptDir, nameOf("web")+guard.DescriptionEnding)
	description, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, ok := survivors(t, d.config.AdoptDir).Of("web")
	if !ok || s.Err == nil {
		t.Errorf("the survivor is %+v, %v", s, ok)
	}
	d.config.Survivor = s
	if !d.Resume(first.id) || d.Resume("") {
		t.Error("an instance that may run is not resumed")
	}
	if exit := d.Run(t.Context(), func(b restart.Begun) { t.Errorf("instance %s began", b.ID) }, nil); !errors.Is(exit.Err, restart.ErrNotTakenOver) {
		t.Errorf("the exit is %+v", exit)
	}
	if err := os.WriteFile(path, description, 0o600); err != nil {
		t.Fatal(err)
	}
	second := first.takenOver(t, d)
	second.release(nil)
	<-second.exit
}

func TestFilesOfAKilledGuardAreRemoved(t *testing.T) {
	dir, log := t.TempDir(), new(testsync.Buffer)
	first := attend(t, adoptable(t, dir, `exec sleep 600`, log))
	first.leave(t)
	killed := parentOf(pidOf(t, first.id))
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, _ = syscall.Wait4(killed, nil, 0, nil)
	guards := filepath.Join(dir, "guards")
	testsync.Until(t, "the end of the guard", func() bool { return len(survivors(t, guards)) == 0 })
	if left, _ := os.ReadDir(guards); len(left) != 0 {
		t.Errorf("files are left: %v", left)
	}
	second := attend(t, adoptable(t, dir, `exec sleep 600`, log))
	if second.id == first.id {
		t.Error("the dead instance was taken over")
	}
	second.release(nil)
	<-second.exit
}

// The start of a program may take forever on a file system that does not respond.
func TestACommandThatCannotBeStartedCanBeCanceled(t *testing.T) {
	for name, adopt := range map[string]bool{"adopt": true, "no adopt": false} {
		t.Run(name, func(t *testing.T) {
			dir, log := t.TempDir(), new(testsync.Buffer)
			blocked := blockExec(t, filepath.Join(dir, "program"))
			d := adoptable(t, dir, "", log)
			d.command.Words, d.config.Adopt, d.killTimeout = []string{filepath.Join(dir, "program")}, adopt, time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			exited := make(chan restart.Exit, 1)
			go func() { exited <- d.Run(ctx, func(restart.Begun) {}, nil) }()
			pid := blocked.await(t)
			guard := parentOf(pid)
			if s, ok := survivors(t, d.config.AdoptDir).Of("web"); ok != adopt || s.Err != nil || adopt && s.Target != "web" {
				t.Errorf("the survivor is %+v, %v", s, ok)
			}
			cancel()
			testsync.Receive(t, "the end of Run", exited)
			blocked.allow(t)
			awaitGone(t, []int{pid, guard})
			if left := survivors(t, d.config.AdoptDir); len(left) != 0 {
				t.Errorf("survivors are %+v", left)
			}
		})
	}
}

// blockedProgram is a program whose start the kernel delays (FAN_OPEN_EXEC_PERM).
type blockedProgram struct {
	events int
	event  unix.FanotifyEventMetadata
}

// blockExec creates a program whose start waits until allow is called.
func blockExec(t *testing.T, path string) *blockedProgram {
	t.Helper()
	// Not copied by this process: a child that it forks in the meantime would have the file open.
	if out, err := exec.Command("cp", "/bin/sleep", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		t.Skipf("the start of a program cannot be delayed without root: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_EXEC_PERM, unix.AT_FDCWD, path); err != nil {
		t.Skipf("this kernel cannot delay the start of a program: %v", err)
	}
	return &blockedProgram{events: fd}
}

// await returns the ID of the process that starts the program.
func (b *blockedProgram) await(t *testing.T) int {
	t.Helper()
	poll := []unix.PollFd{{Fd: int32(b.events), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, int(testsync.Timeout.Milliseconds()))
	for err == unix.EINTR {
		n, err = unix.Poll(poll, int(testsync.Timeout.Milliseconds()))
	}
	if n != 1 {
		t.Fatalf("the program was not started: %v", err)
	}
	buf := (*[unsafe.Sizeof(b.event)]byte)(unsafe.Pointer(&b.event))
	if _, err := unix.Read(b.events, buf[:]); err != nil {
		t.Fatal(err)
	}
	return int(b.event.Pid)
}

func (b *blockedProgram) allow(t *testing.T) {
	t.Helper()
	response := unix.FanotifyResponse{Fd: b.event.Fd, Response: unix.FAN_ALLOW}
	buf := (*[unsafe.Sizeof(response)]byte)(unsafe.Pointer(&response))
	if _, err := unix.Write(b.events, buf[:]); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(int(b.event.Fd))
}

func TestAnInstanceThatCannotBeDescribedEndsWithItsEngine(t *testing.T) {
	if !faulttest.InNamespaces(t) {
		return
	}
	dir, full, log := t.TempDir(), t.TempDir(), new(testsync.Buffer)
	faulttest.SmallDisk(t, full, "size=4k")
	if err := os.WriteFile(filepath.Join(full, "data"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	d := adoptable(t, dir, reluctant, log)
	d.config.AdoptDir = full
	d.SetStop(restart.StopSettings{GracePeriod: testsync.Timeout, PreStop: &restart.PreStop{Command: []string{"sh", "-c", "test ! -e asked && echo >hooked"}}})
	r := attend(t, d)
	awaitFile(t, filepath.Join(dir, "ready"))
	guard := parentOf(pidOf(t, r.id))
	if text := log.String(); !strings.Contains(text, "process ends with the engine despite adopt") || !strings.Contains(text, "no space left") {
		t.Errorf("the log is %s", text)
	}
	if left, _ := os.ReadDir(full); len(left) != 1 {
		t.Errorf("files are left: %v", left)
	}
	r.release(restart.ErrReleased)
	awaitFile(t, filepath.Join(dir, "asked"))
	letGo(t, dir)
	if exit := testsync.Receive(t, "the exit", r.exit); exit.Err != restart.ErrReleased {
		t.Errorf("the exit is %+v", exit)
	}
	awaitFile(t, filepath.Join(dir, "exited"))
	if !exists(filepath.Join(dir, "hooked")) {
		t.Errorf("pre_stop did not run before the signal: %s", log)
	}
	if alive(pidOf(t, r.id)) {
		t.Error("the process runs")
	}
	testsync.Until(t, "the guard to remove its cgroups", func() bool { return len(cgroupsOf(guard)) == 0 })
}

// reluctant is a script that exits only once it was asked to exit and the file "go" exists.
const reluctant = `trap 'echo >>asked; until test -e go; do sleep 0.01; done; echo >exited; exit 0' TERM
echo >ready; while :; do sleep 0.01; done`

// letGo makes a reluctant script exit.
func letGo(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	testsync.Until(t, "the file "+path, func() bool { _, err := os.Stat(path); return err == nil })
}

func TestASurvivorThatExitsIsNotKilledWhenTheEngineStops(t *testing.T) {
	dir, log := t.TempDir(), new(testsync.Buffer)
	first := attend(t, adoptable(t, dir, reluctant, log))
	awaitFile(t, filepath.Join(dir, "ready"))
	first.leave(t)
	guards := filepath.Join(dir, "guards")
	s, _ := survivors(t, guards).Of("web")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- endUnwanted(ctx, s, guards, nil) }()
	awaitFile(t, filepath.Join(dir, "asked"))
	cancel()
	if err := testsync.Receive(t, "the return of End", ended); err != restart.ErrReleased {
		t.Errorf("End() = %v", err)
	}
	letGo(t, dir)
	if err := endUnwanted(t.Context(), s, guards, nil); err != nil { // the next engine
		t.Error(err)
	}
	if text := text(filepath.Join(dir, "asked")); text != "" {
		t.Errorf("the process was asked to exit more than once: %q", text)
	}
	if _, err := os.Stat(filepath.Join(dir, "exited")); err != nil {
		t.Errorf("the process was killed: %v", err)
	}
}

func TestARequestToEndCancelsTheStartAfterASurvivor(t *testing.T) {
	dir, log := t.TempDir(), new(testsync.Buffer)
	first := attend(t, adoptable(t, dir, reluctant, log))
	awaitFile(t, filepath.Join(dir, "ready"))
	first.leave(t)
	d := adoptable(t, dir, `echo >second; exec sleep 600`, log)
	d.SetStop(restart.StopSettings{GracePeriod: testsync.Timeout, PreStop: &restart.PreStop{Command: []string{"sh", "-c", "echo >hooked"}}})
	end, exited := make(chan time.Duration), make(chan restart.Exit, 1)
	go func() {
		exited <- runAttached(t.Context(), d, func(b restart.Begun) { t.Errorf("instance %s began", b.ID) }, end)
	}()
	awaitFile(t, filepath.Join(dir, "asked"))
	end <- testsync.Timeout
	letGo(t, dir)
	if exit := testsync.Receive(t, "the end of Run", exited); exit.Err == nil {
		t.Errorf("the exit is %+v", exit)
	}
	if _, err := os.Stat(filepath.Join(dir, "second")); err == nil {
		t.Error("the command was started")
	}
	if exists(filepath.Join(dir, "hooked")) {
		t.Error("pre_stop of the new configuration ran after the signal")
	}
}

func TestAGracePeriodEndsWithoutTheEngine(t *testing.T) {
	tier.Slow(t)
	testsync.Longer(t, "an engine left before the end of a grace period", time.Second, testsync.Timeout, func(grace time.Duration) bool {
		dir, log := t.TempDir(), new(testsync.Buffer)
		first := attend(t, adoptable(t, dir, reluctant, log))
		awaitFile(t, filepath.Join(dir, "ready"))
		first.end <- grace
		testsync.Until(t, "the request or the exit", func() bool { return exists(filepath.Join(dir, "asked")) || len(first.exit) > 0 })
		first.release(restart.ErrReleased)
		if exit := testsync.Receive(t, "the release", first.exit); exit.Err != restart.ErrReleased {
			return false
		}
		awaitGone(t, []int{pidOf(t, first.id)})
		second := attend(t, adoptable(t, dir, reluctant, log))
		if second.id != first.id { // the guard reported the exit before it noticed that the engine had disconnected
			second.release(nil)
			return false
		}
		if exit := testsync.Receive(t, "the exit", second.exit); exit.Code != 137 {
			t.Errorf("instance %s has the exit %+v", second.id, exit)
		}
		return true
	})
}

// deafScript ignores SIGTERM.
const deafScript = `trap "" TERM; echo >ready; while :; do sleep 0.01; done`

// The default grace period is longer than tests wait.
func TestASurvivorIsEndedWithinItsOwnGracePeriod(t *testing.T) {
	tier.Slow(t)
	const grace = 50 * time.Millisecond
	for name, end := range map[string]func(t *testing.T, dir string, log *testsync.Buffer) error{
		"target removed": func(t *testing.T, dir string, log *testsync.Buffer) error {
			guards := filepath.Join(dir, "guards")
			s, _ := survivors(t, guards).Of("web")
			return endUnwanted(t.Context(), s, guards, slog.New(slog.NewTextHandler(log, nil)))
		},
		"command changed": func(t *testing.T, dir string, log *testsync.Buffer) error {
			next := attend(t, adoptable(t, dir, `exec sleep 600`, log))
			next.release(nil)
			<-next.exit
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var first *attendance
			var log *testsync.Buffer
			testsync.Until(t, "an end within killTimeout", func() bool { // unless the guard is slow
				var dir string
				dir, log = t.TempDir(), new(testsync.Buffer)
				d := adoptable(t, dir, deafScript, log)
				d.SetStop(restart.StopSettings{GracePeriod: grace})
				first = attend(t, d)
				awaitFile(t, filepath.Join(dir, "ready"))
				first.leave(t)
				err := end(t, dir, log)
				awaitGone(t, []int{pidOf(t, first.id)})
				if errors.Is(err, context.DeadlineExceeded) {
					return false
				}
				if err != nil {
					t.Error(err)
				}
				return true
			})
			for _, want := range []string{
				"grace_period=50ms", "process did not exit within its grace period, killed",
				`msg="instance of an earlier engine exited" target=web instance=` + first.id + " exit_code=137",
			} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log does not have %q:\n%s", want, log)
				}
			}
		})
	}
}

// intScript exits when it gets SIGINT, and ignores SIGTERM.
const intScript = `trap "" TERM; trap "echo >interrupted; exit 5" INT; echo >ready; while :; do sleep 0.01; done`

func TestTheStopSignalHoldsAcrossEngines(t *testing.T) {
	tier.Slow(t)
	interrupt := restart.StopSettings{GracePeriod: testsync.Timeout, Signal: restart.StopSignal(syscall.SIGINT)}
	for name, end := range map[string]func(t *testing.T, first *attendance, dir string, log *testsync.Buffer){
		"taken over": func(t *testing.T, first *attendance, dir string, log *testsync.Buffer) {
			d := adoptable(t, dir, intScript, log)
			d.SetStop(interrupt)
			next := attend(t, d)
			next.end <- testsync.Timeout
			if exit := testsync.Receive(t, "the end", next.exit); next.id != first.id || exit.Code != 5 {
				t.Errorf("instance %s ended with %+v", next.id, exit)
			}
		},
		"target removed": func(t *testing.T, first *attendance, dir string, log *testsync.Buffer) {
			guards := filepath.Join(dir, "guards")
			s, _ := survivors(t, guards).Of("web")
			if err := endUnwanted(t.Context(), s, guards, slog.New(slog.NewTextHandler(log, nil))); err != nil {
				t.Error(err)
			}
		},
		"command changed": func(t *testing.T, first *attendance, dir string, log *testsync.Buffer) {
			next := attend(t, adoptable(t, dir, `exec sleep 600`, log)) // it has another stop signal
			next.release(nil)
			<-next.exit
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, log := t.TempDir(), new(testsync.Buffer)
			d := adoptable(t, dir, intScript, log)
			d.SetStop(interrupt)
			first := attend(t, d)
			awaitFile(t, filepath.Join(dir, "ready"))
			first.leave(t)
			end(t, first, dir, log)
			awaitGone(t, []int{pidOf(t, first.id)})
			awaitFile(t, filepath.Join(dir, "interrupted"))
		})
	}
}

func TestAProcessThatNoEngineCanFindEndsByItsStopSignal(t *testing.T) {
	dir, log := t.TempDir(), new(testsync.Buffer)
	d := adoptable(t, dir, intScript, log)
	d.SetStop(restart.StopSettings{GracePeriod: testsync.Timeout, Signal: restart.StopSignal(syscall.SIGINT)})
	first := attend(t, d)
	guard := parentOf(pidOf(t, first.id))
	awaitFile(t, filepath.Join(dir, "ready"))
	if err := os.RemoveAll(filepath.Join(dir, "guards")); err != nil {
		t.Fatal(err)
	}
	first.leave(t)
	awaitGone(t, []int{pidOf(t, first.id), guard})
	_, _ = syscall.Wait4(guard, nil, 0, nil)
	awaitFile(t, filepath.Join(dir, "interrupted"))
}

func TestAProcessThatNoEngineCanFindEndsWithinItsGracePeriod(t *testing.T) {
	dir, log := t.TempDir(), new(testsync.Buffer)
	d := adoptable(t, dir, deafScript, log)
	d.SetStop(restart.StopSettings{GracePeriod: 50 * time.Millisecond})
	first := attend(t, d)
	guard := parentOf(pidOf(t, first.id))
	awaitFile(t, filepath.Join(dir, "ready"))
	if err := os.RemoveAll(filepath.Join(dir, "guards")); err != nil {
		t.Fatal(err)
	}
	first.leave(t)
	awaitGone(t, []int{pidOf(t, first.id), guard})
	_, _ = syscall.Wait4(guard, nil, 0, nil)
}

// An engine may inherit a descriptor from its parent, such as that of flock(1).
func TestAGuardHoldsNoDescriptorOfTheEnginesParent(t *testing.T) {
	dir, log := t.TempDir(), new(testsync.Buffer)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	inherited, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD, 100) // without close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	first := attend(t, adoptable(t, dir, `exec sleep 600`, log))
	if err := errors.Join(w.Close(), unix.Close(inherited), r.SetReadDeadline(time.Now().Add(testsync.Timeout))); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the pipe is open in another process: %v", err)
	}
	first.release(nil)
	<-first.exit
}

func TestWhatAKilledGuardHasLeftIsKilled(t *testing.T) {
	withAndWithoutCgroup(t, func(t *testing.T, noCgroup bool) {
		dir, log := t.TempDir(), new(testsync.Buffer)
		d := adoptable(t, dir, `for i in 1 2 3; do sleep 600 & echo $! >>pids; done; echo >ready; wait`, log)
		d.config.NoCgroup = noCgroup
		first := attend(t, d)
		awaitFile(t, filepath.Join(dir, "ready"))
		first.leave(t)
		killed := parentOf(pidOf(t, first.id))
		if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_, _ = syscall.Wait4(killed, nil, 0, nil)
		awaitGone(t, []int{pidOf(t, first.id)})
		guards := filepath.Join(dir, "guards")
		testsync.Until(t, "the end of the rest", func() bool { return len(survivors(t, guards)) == 0 })
		for _, pid := range strings.Fields(text(filepath.Join(dir, "pids"))) {
			if pid, _ := strconv.Atoi(pid); alive(pid) {
				t.Errorf("process %d is running", pid)
			}
		}
		if left, _ := os.ReadDir(guards); len(left) != 0 {
			t.Errorf("files are left: %v", left)
		}
		if left := cgroupsOf(killed); len(left) > 0 {
			t.Errorf("cgroups %v are left", left)
		}
	})
}

func TestAProcessThatNoEngineCanFindEnds(t *testing.T) {
	for name, removeFirst := range map[string]bool{"files removed with an engine": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			dir, log := t.TempDir(), new(testsync.Buffer)
			d := adoptable(t, dir, reluctant, log)
			d.findInterval = time.Millisecond
			first := attend(t, d)
			guard := parentOf(pidOf(t, first.id))
			awaitFile(t, filepath.Join(dir, "ready"))
			if !removeFirst {
				first.leave(t)
			}
			files, _ := filepath.Glob(filepath.Join(dir, "guards", "*"))
			for _, file := range files {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
			second := attend(t, adoptable(t, dir, `exec sleep 600`, log))
			if removeFirst {
				if _, err := os.Stat(filepath.Join(dir, "asked")); err == nil {
					t.Error("the process was ended while an engine watched it")
				}
				first.leave(t)
			}
			awaitFile(t, filepath.Join(dir, "asked"))
			letGo(t, dir)
			awaitGone(t, []int{pidOf(t, first.id), guard})
			_, _ = syscall.Wait4(guard, nil, 0, nil)
			if s, ok := survivors(t, filepath.Join(dir, "guards")).Of("web"); !ok || s.ID != second.id {
				t.Errorf("the survivor is %+v, want the second instance", s)
			}
			second.release(nil)
			<-second.exit
		})
	}
}

func TestAGuardThatIsStoppedAfterItsLastReportHangsNothing(t *testing.T) {
	stopped := exec.Command("sleep", "600") // in the place of a guard
	if err := stopped.Start(); err != nil {
		t.Fatal(err)
	}
	if err := stopped.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	unreaped.Store(stopped.Process.Pid, nil)
	socket, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	i := driver(t, sh("true")).newInstance()
	i.guardConn = &guardConn{socket: socket, guardPid: stopped.Process.Pid}
	for n := range i.outputs {
		r, w, err := os.Pipe()
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		i.outputs[n] = &logfile.Source{File: r}
	}
	defer i.close()
	i.run(i.streams, strings.NewReader(`{"Pid":1,"ID":"1-a"}{"Ended":true,"Code":3}`))
	exited := make(chan restart.Exit, 1)
	go func() { exited <- i.watch(t.Context(), func(restart.Begun) {}, nil) }()
	if exit := testsync.Receive(t, "the exit", exited); exit.Code != 3 || exit.Err != nil {
		t.Errorf("the exit is %+v", exit)
	}
}

// It may write more than a pipe holds before it exits.
func TestTheLastOutputOfAProcessThatNoEngineCanFindIsRead(t *testing.T) {
	dir, log := t.TempDir(), new(testsync.Buffer)
	script := `trap 'head -c 200000 /dev/zero; echo >exited; exit' TERM
echo >ready; while :; do sleep 0.01; done`
	first := attend(t, adoptable(t, dir, script, log))
	guard := parentOf(pidOf(t, first.id))
	awaitFile(t, filepath.Join(dir, "ready"))
	if err := os.RemoveAll(filepath.Join(dir, "guards")); err != nil {
		t.Fatal(err)
	}
	first.leave(t)
	awaitFile(t, filepath.Join(dir, "exited"))
	awaitGone(t, []int{guard})
	_, _ = syscall.Wait4(guard, nil, 0, nil)
}

func TestAGuardWhoseProcessHasEndedDoesNotWaitForEver(t *testing.T) {
	dir, log := t.TempDir(), new(testsync.Buffer)
	d := adoptable(t, dir, `until test -e end; do sleep 0.01; done`, log)
	d.findInterval, d.linger = time.Millisecond, 10*time.Millisecond
	first := attend(t, d)
	guard := parentOf(pidOf(t, first.id))
	first.leave(t)
	if !alive(pidOf(t, first.id)) {
		t.Error("the process ended before it was to")
	}
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, []int{guard})
	_, _ = syscall.Wait4(guard, nil, 0, nil)
	if left, _ := os.ReadDir(filepath.Join(dir, "guards")); len(left) != 0 {
		t.Errorf("files are left: %v", left)
	}
}

// killedGuard returns the instance of a guard that was killed. Its cgroup, a directory with the file cgroup.events, is
// populated.
func killedGuard(t *testing.T, log *testsync.Buffer) *instance {
	t.Helper()
	dir := t.TempDir()
	setPopulated(t, dir, "1")
	logger := slog.New(slog.NewTextHandler(log, nil))
	d := newDriver(Config{Target: "web", Logger: logger})
	i := d.newInstance()
	i.guardConn = &guardConn{}
	i.tree = guard.Tree{Pid: os.Getpid(), Cgroup: guard.Cgroup(dir)}
	return i
}

func setPopulated(t *testing.T, dir, populated string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.events"), []byte("populated "+populated+"\nfrozen 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A process may take long to die: it frees much memory, or waits for a disk. Until then, the next instance would find
// its port in use.
func TestAnInstanceLastsUntilWhatAKilledGuardHasLeftIsDead(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		i := killedGuard(t, new(testsync.Buffer))
		exited := make(chan restart.Exit, 1)
		go func() { exited <- i.guardKilled(t.Context()) }()
		time.Sleep(time.Hour)
		select {
		case exit := <-exited:
			t.Fatalf("the instance has ended with %+v", exit)
		default:
		}
		setPopulated(t, string(i.tree.Cgroup), "0")
		if exit := <-exited; exit.Code != 137 || exit.Err != nil {
			t.Errorf("the exit is %+v", exit)
		}
	})
}

func TestWhatAKilledGuardHasLeftIsGivenUpAfterTheContext(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		after time.Duration
		want  error
	}{
		"killed":   {nil, killTimeout, nil},
		"released": {restart.ErrReleased, 0, restart.ErrReleased},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := new(testsync.Buffer)
				i := killedGuard(t, log)
				ctx, cancel := context.WithCancelCause(t.Context())
				cancel(c.cause)
				began := time.Now()
				if exit := i.guardKilled(ctx); exit.Err != c.want || time.Since(began) != c.after {
					t.Errorf("after %v the exit is %+v", time.Since(began), exit)
				}
			})
		})
	}
}

func TestAnInstanceThatDiesOfTheLastSignalIsNotGivenUp(t *testing.T) {
	for name, dies := range map[string]bool{"dies": true, "does not die": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reports := make(chan guard.Report, 1)
				i := killedGuard(t, new(testsync.Buffer))
				i.socket, i.orders, i.reports = new(net.UnixConn), json.NewEncoder(io.Discard), reports
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if dies {
					time.AfterFunc(2*time.Second, func() { reports <- guard.Report{Ended: true, Code: 137} })
				}
				if exit := i.watch(ctx, func(restart.Begun) {}, nil); exit.Code != 137 || i.gaveUp == dies {
					t.Errorf("gave up: %v, the exit is %+v", i.gaveUp, exit)
				}
			})
		})
	}
}
