package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/internal/cgroup"
	"github.com/sonde-probe/sonde/internal/quota"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process/internal/guard"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// leaveRoom reports whether this is the process of the test in a control group that has room for the given number of
// further processes and threads.
func leaveRoom(t *testing.T, tasks int64) bool {
	t.Helper()
	const limit = 200
	if !faulttest.InCgroup(t, faulttest.Processes(limit)) {
		return false
	}
	quota.MakeThreads(20) // so that the test itself needs none later
	own, err := cgroup.Current()
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := own.Dirs("pids")
	if err != nil {
		t.Fatal(err)
	}
	for {
		present, ok, err := cgroup.Number(dirs[0], "pids.current")
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		if present >= limit-tasks {
			return true
		}
		sleeper := exec.Command("sleep", "600")
		if err := sleeper.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() })
	}
}

func TestWithoutRoomForAGuardNoneIsStarted(t *testing.T) {
	tier.CI(t)
	if !leaveRoom(t, guard.Tasks-1) {
		return
	}
	d := driver(t, sh("exit 0"))
	exit := d.Run(t.Context(), func(b restart.Begun) { t.Errorf("instance %s began", b.ID) }, nil)
	if !errors.Is(exit.Err, restart.ErrShortage) || !strings.Contains(exit.Err.Error(), "no room") {
		t.Errorf("the exit is %+v", exit)
	}
}

// Other processes may take the room in the meantime.
func TestAGuardThatGetsNoThreadsIsNotTheCommandsFault(t *testing.T) {
	tier.CI(t)
	if !leaveRoom(t, 3) {
		return
	}
	i := driver(t, sh("exit 0")).newInstance()
	var err error
	if i.guardConn, err = startGuard("web", guard.Start{}, i.streams); err != nil {
		t.Fatal(err)
	}
	defer i.close()
	exit := i.watch(t.Context(), func(b restart.Begun) { t.Errorf("instance %s began", b.ID) }, nil)
	if !errors.Is(exit.Err, restart.ErrShortage) || !strings.Contains(exit.Err.Error(), "exit status 2: runtime") {
		t.Errorf("the exit is %+v", exit)
	}
	if exit.Output != "" {
		t.Errorf("the output of the command is that of the guard: %s", exit.Output)
	}
}

func TestAGuardNeedsNoThreadsAfterItsStart(t *testing.T) {
	dir, log := t.TempDir(), new(testsync.Buffer)
	script := `echo $$$$ >pids; while :; do echo; echo >&2; sleep 0.001 & wait; done`
	r := attend(t, adoptable(t, dir, script, log))
	guardPid := parentOf(pidOf(t, r.id))
	for range 10 {
		tasks, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(guardPid), "task"))
		if err != nil || len(tasks) > guard.Tasks-1 {
			t.Errorf("the guard has %d threads, more than %d: %v", len(tasks), guard.Tasks-1, err)
		}
		r.leave(t)
		r = r.takenOver(t, adoptable(t, dir, script, log))
	}
	r.release(nil)
	<-r.exit
}
