package guard

import (
	"context"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/boot"
	"github.com/sonde-probe/sonde/tests/faulttest"
)

func TestProcessesAreParsedWhateverTheirNames(t *testing.T) {
	const rest = " 0 -1 4194560 94 0 0 0 1 2 0 0 20 0 1 0 7788 2494464 387"
	want := process{state: 'S', parent: 34, group: 12, session: 11, ticks: 7788}
	for stat, want := range map[string]process{
		"12 (sh) S 34 12 11" + rest:           want,
		"12 (a) R 99 (b) S 34 12 11" + rest:   want,
		"12 (new\nline) S 34 12 11" + rest:    want,
		"12 (sh)":                             {},
		"12 (sh) S 34 12 11 0":                {},
		"":                                    {},
		"12 (sh) S not-a-number 12 11" + rest: {state: 'S', group: 12, session: 11, ticks: 7788},
	} {
		if got := parseStat([]byte(stat)); got != want {
			t.Errorf("parseStat(%q) = %+v, want %+v", stat, got, want)
		}
	}
}

// sleepingTree returns a command that sleeps, in a group of its own, and its tree.
func sleepingTree(t *testing.T) (child *exec.Cmd, tree Tree) {
	t.Helper()
	child = exec.Command("sleep", "600")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	session, err := unix.Getsid(0)
	if err != nil {
		t.Fatal(err)
	}
	id, err := boot.ID()
	if err != nil {
		t.Fatal(err)
	}
	tree = Tree{Boot: id, Guard: session, Pid: child.Process.Pid}
	tree.identifyCommand()
	return child, tree
}

func TestOnlyTheGroupOfTheTreeIsKilled(t *testing.T) {
	child, tree := sleepingTree(t)
	for name, change := range map[string]func(*Tree){
		"another boot":     func(t *Tree) { t.Boot = "another" },
		"no boot":          func(t *Tree) { t.Boot = "" },
		"another session":  func(t *Tree) { t.Guard++ },
		"older than it":    func(t *Tree) { t.Ticks++ },
		"of no start time": func(t *Tree) { t.Ticks = 0 },
		"not started":      func(t *Tree) { t.Pid = 0 },
	} {
		other := tree
		change(&other)
		if exists, err := other.groupExists(); exists || err != nil {
			t.Errorf("%s: the group of another tree is taken for its own, or %v", name, err)
		}
	}
	if !tree.KillOrphans(t.Context()) {
		t.Error("the process is not killed")
	}
	if err := child.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process has ended with %v", err)
	}
}

// Without descriptors it is unknown whether a process is dead.
func TestAGroupThatCannotBeFoundIsNotDead(t *testing.T) {
	child, tree := sleepingTree(t)
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	restore := faulttest.NoDescriptors(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	killed := tree.KillOrphans(ctx)
	restore()
	if killed {
		t.Error("the processes are taken for dead")
	}
}
