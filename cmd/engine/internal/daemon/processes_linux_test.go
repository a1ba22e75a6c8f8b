package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// afterEngine returns a daemon whose previous engine left the process web running, and the ID of that process.
func afterEngine(t *testing.T) (d *daemon, pid int, log *testsync.Buffer) {
	t.Helper()
	log = new(testsync.Buffer)
	logger := slog.New(slog.NewTextHandler(log, nil))
	d = &daemon{parts: parts{saved: &saved{log: logger}}, settings: config.Engine{State: filepath.Join(t.TempDir(), "state")}, log: logger}
	d.processes = &processes{state: d.settings.State, saved: d.saved, log: logger}
	if err := d.processes.makeDir(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.processes.dir.Close() })
	ctx, release := context.WithCancelCause(t.Context())
	began, released := make(chan string, 1), make(chan restart.Exit, 1)
	driver := d.process(t, "exec sleep 600")
	go func() { released <- driver.Run(ctx, func(b restart.Begun) { began <- b.ID }, nil) }()
	id, _, _ := strings.Cut(testsync.Receive(t, "the instance", began), "-")
	release(restart.ErrReleased)
	testsync.Receive(t, "the release", released)
	pid, err := strconv.Atoi(id)
	if err != nil {
		t.Fatal(err)
	}
	d.processes.dir.Close()
	if err := d.openState(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.saved.close() })
	t.Cleanup(func() {
		for _, s := range d.processes.survivors {
			if err := s.End(context.Background(), d.processes.dir.Path(), d.log, func(string) bool { return false }); err != nil {
				t.Error("a process is left: ", err)
			}
		}
	})
	if d.restarts, err = restart.New(restart.Config{Engine: engine.New(engine.Config{}), Logger: d.log}); err != nil {
		t.Fatal(err)
	}
	return d, pid, log
}

// process returns a driver for the process web.
func (d *daemon) process(t *testing.T, script string) *process.Driver {
	t.Helper()
	survivor, _ := d.processes.survivors.Of("web")
	driver, err := process.New(process.Config{
		Target: "web", Command: []string{"sh", "-c", script}, Adopt: true, AdoptDir: d.processes.dir.Path(), Survivor: survivor, Logger: d.log,
	})
	if err != nil {
		t.Fatal(err)
	}
	return driver
}

func gone(pid int) func() bool { return func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH } }

func TestTheEndOfASurvivorIsTriedAgain(t *testing.T) {
	tier.Slow(t)
	t.Parallel()
	d, pid, log := afterEngine(t)
	socket, err := filepath.Glob(filepath.Join(d.processes.dir.Path(), "*.sock"))
	if err != nil || len(socket) != 1 {
		t.Fatal(socket, err)
	}
	if err := os.Rename(socket[0], socket[0]+".hidden"); err != nil {
		t.Fatal(err)
	}
	var ending sync.WaitGroup
	defer ending.Wait()
	ending.Go(func() { d.processes.endSurvivors(t.Context(), d.restarts.Driver) })
	testsync.Until(t, "the error in the log", func() bool {
		return strings.Contains(log.String(), "cannot end the process of a removed target, retrying")
	})
	if err := os.Rename(socket[0]+".hidden", socket[0]); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "the end of the process", gone(pid))
}

// The process of a target that a reload has added again belongs to its new driver.
func TestASurvivorWhoseTargetIsBackIsNotEnded(t *testing.T) {
	d, pid, _ := afterEngine(t)
	if err := d.restarts.Apply(map[string]restart.Unit{"web": {Driver: d.process(t, "exec sleep 600")}}); err != nil {
		t.Fatal(err)
	}
	s, _ := d.processes.survivors.Of("web")
	isProcess := func(target string) bool { return d.restarts.Driver(target) != nil }
	d.processes.endSurvivor(t.Context(), s, isProcess) // as if found before the reload
	if gone(pid)() {
		t.Error("the process was ended")
	}
	if err := d.restarts.Apply(nil); err != nil {
		t.Fatal(err)
	}
	d.processes.endSurvivor(t.Context(), s, isProcess)
	testsync.Until(t, "the end of the process", gone(pid))
}

// The memory of the previous engine may be older than the process, and the restart policy may forbid another start.
func TestASurvivorThatIsNotResumedIsEndedWhateverThePolicy(t *testing.T) {
	d, pid, _ := afterEngine(t)
	unit := restart.Unit{Driver: d.process(t, "exec sleep 601"), Policy: restart.Never, Revision: "1"}
	units := map[string]restart.Unit{"web": unit}
	if err := d.restarts.Apply(units); err != nil {
		t.Fatal(err)
	}
	restored := map[string]restart.Memory{
		"web": {Revision: unit.RevisionID(), Instance: "before", Started: 1, Since: time.Now(), Exited: true},
	}
	d.processes.addSurvivors(restored, units)
	if resumed := d.restarts.Restore(restored); len(resumed) != 0 {
		t.Errorf("%v are resumed", resumed)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = d.restarts.Run(ctx) })
	testsync.Until(t, "the end of the process", gone(pid))
	d.restarts.Kill()
	stop()
	running.Wait()
}

// Neither a discarded plan nor a configuration that a part rejects leaves a directory of processes behind.
func TestWhatDoesNotComeIntoUseLeavesNoDirectoryOfProcesses(t *testing.T) {
	d := idle(t)
	d.processes.state = filepath.Join(t.TempDir(), "state")
	adopting := func(policy restart.Policy) *config.Config {
		return &config.Config{Targets: map[string]config.Target{"web": {
			Driver: process.Config{Command: []string{"true"}, Adopt: true}, Settings: restart.Unit{Policy: policy},
		}}}
	}
	isLeft := func() bool {
		_, err := os.Stat(d.processes.state + ".processes") // or a dangling symbolic link
		_, counted := d.processes.outputs.Dropped("web")
		return err == nil || d.processes.dir != nil || d.processes.located.Load() != nil || counted
	}
	described := adopting(restart.Always)
	described.Described = true
	if p := d.planner().plan(loadResult{config: described}); p.Error != nil || p.Instances.Started != 1 {
		t.Fatalf("the plan is %+v, %+v", p, p.Error)
	}
	if isLeft() {
		t.Error("the plan has left a directory")
	}
	if _, err := d.apply(adopting(restart.Never+1), anyEffect); err == nil || isLeft() {
		t.Errorf("a configuration with the error %v has left a directory", err)
	}
	if _, err := d.apply(adopting(restart.Always), anyEffect); err != nil || !isLeft() {
		t.Errorf("a configuration in use has no directory: %v", err)
	}
	d.processes.closeDir()
}
