package process

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// adoptable returns a driver whose instances outlive its Run.
func adoptable(t *testing.T, dir, script string, log *testsync.Buffer) *Driver {
	t.Helper()
	d, err := New(Config{
		Target: "web", Command: []string{"sh", "-c", script}, Adopt: true, AdoptDir: filepath.Join(dir, "guards"), Dir: dir,
		Log: slog.New(slog.NewTextHandler(log, nil)), LinesPerSecond: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// attendance is one call of Run.
type attendance struct {
	release context.CancelCauseFunc
	end     chan time.Duration
	id      string
	exit    chan restart.Exit
}

// attend calls Run, and returns when the instance runs.
func attend(t *testing.T, d *Driver) *attendance {
	t.Helper()
	ctx, release := context.WithCancelCause(context.Background())
	r := &attendance{release: release, end: make(chan time.Duration, 1), exit: make(chan restart.Exit, 1)}
	began := make(chan string, 1)
	go func() { r.exit <- d.Run(ctx, func(id string) { began <- id }, r.end) }()
	t.Cleanup(func() { release(nil) })
	select {
	case r.id = <-began:
	case exit := <-r.exit:
		t.Fatalf("the instance did not begin: %+v", exit)
	case <-time.After(testsync.Timeout):
		t.Fatal("timed out waiting for the instance")
	}
	return r
}

func (r *attendance) leave(t *testing.T) {
	t.Helper()
	r.release(restart.ErrReleased)
	if exit := testsync.Receive(t, "the release", r.exit); exit.Err != restart.ErrReleased {
		t.Fatalf("the exit is %+v", exit)
	}
}

func text(name string) string {
	b, _ := os.ReadFile(name)
	return strings.TrimSpace(string(b))
}

func TestAnInstanceOutlivesItsRunAndIsTakenOver(t *testing.T) {
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
	second := attend(t, d)
	if second.id != first.id {
		t.Errorf("the instance is %s, want %s", second.id, first.id)
	}
	second.end <- 20 * time.Second
	if exit := testsync.Receive(t, "the end", second.exit); exit.Code != 3 || !strings.Contains(exit.Output, "bye") {
		t.Errorf("the exit is %+v", exit)
	}
	if pids := text(filepath.Join(dir, "pids")); strings.Contains(pids, "\n") {
		t.Errorf("the command was started again: %q", pids)
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
	first := attend(t, adoptable(t, dir, `echo $$$$ >pid; exec sleep 600`, log))
	first.leave(t)
	guards := filepath.Join(dir, "guards")
	all := Survivors(guards)
	if len(all) != 1 || all[0].Target != "web" || all[0].ID != first.id {
		t.Fatalf("survivors are %+v", all)
	}
	c := Config{AdoptDir: guards, Log: slog.New(slog.NewTextHandler(log, nil))}
	End(t.Context(), c, func(string) bool { return false })
	if len(Survivors(guards)) != 1 {
		t.Error("a wanted survivor was ended")
	}
	End(t.Context(), c, func(target string) bool { return target == "web" })
	if left := Survivors(guards); len(left) != 0 {
		t.Errorf("survivors are %+v", left)
	}
	if err := syscall.Kill(all[0].Pid, 0); err != syscall.ESRCH {
		t.Errorf("the process is there: %v", err)
	}
}
