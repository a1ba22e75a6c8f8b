package guard

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/internal/boot"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/shortage"
)

// becomeSubreaper makes this process the parent of descendants whose parent exits.
func becomeSubreaper() error { return command.BecomeSubreaper() }

// children returns the children of all threads of this process. It may miss a new child: the caller repeats it until
// wait4 returns ECHILD.
func children() (pids []int) { return command.Children(os.Getpid()) }

// process holds the fields of /proc/<pid>/stat that are used here.
type process struct {
	state                  byte // Z or X after its exit
	parent, group, session int
	ticks                  uint64 // when it was started, in clock ticks since the kernel's start
}

// parseStat parses /proc/<pid>/stat. For an invalid text it returns the zero process.
func parseStat(stat []byte) (p process) {
	const parent, group, session, ticks = 1, 2, 3, 19 // fields after the name; the state is the first
	fields := command.StatFields(stat)
	if len(fields) <= ticks {
		return process{}
	}
	number := func(field int) int { n, _ := strconv.Atoi(string(fields[field])); return n }
	p = process{state: fields[0][0], parent: number(parent), group: number(group), session: number(session)}
	p.ticks, _ = strconv.ParseUint(string(fields[ticks]), 10, 64)
	return p
}

// maxDepth is the maximum number of ancestors of a process that IsDescendant checks.
const maxDepth = 1000

// IsDescendant reports whether a process is running and descends from the process of, which must be a subreaper.
func IsDescendant(pid, of int) bool {
	for range maxDepth {
		if pid <= 1 {
			return false
		}
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if pid = parseStat(stat).parent; pid == of {
			return true
		}
	}
	return false
}

func (p process) hasEnded() bool { return p.state == 'Z' || p.state == 'X' }

// identifyGuard makes this process the guard of the tree.
func (t *Tree) identifyGuard() {
	t.Boot, _ = boot.ID() // "" if it is unknown
	t.Guard = os.Getpid()
}

// identifyCommand records the start time of the command, which must not have been reaped yet.
func (t *Tree) identifyCommand() {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(t.Pid) + "/stat")
	t.Ticks = parseStat(stat).ticks
}

// minKillPause and maxKillPause limit the time between two checks of processes that are dying of SIGKILL. It doubles
// each time, since a check may read all of /proc.
const (
	minKillPause = 2 * time.Millisecond
	maxKillPause = time.Second
)

// KillOrphans kills the remaining processes of a tree whose guard was killed. It returns true when none is left, or
// false when ctx is done. The kernel has killed the command itself, but no descendants. Without a cgroup, KillOrphans
// kills only the command's process group, not descendants that have left it.
func (t Tree) KillOrphans(ctx context.Context) (killed bool) {
	for pause := minKillPause; ; pause = min(2*pause, maxKillPause) {
		t.Cgroup.kill()
		exists, err := t.groupExists()
		if exists {
			command.KillGroup(t.Pid)
		}
		if !exists && err == nil && !t.Cgroup.isPopulated() {
			t.Cgroup.remove()
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

// groupExists reports whether the command's process group has processes. A later group with the same number has another
// session, or the kernel was started again. An error means that this process lacks descriptors or memory to find out.
func (t Tree) groupExists() (bool, error) {
	if t.Pid == 0 || t.Ticks == 0 || t.Boot == "" || syscall.Kill(-t.Pid, 0) == syscall.ESRCH {
		return false, nil
	}
	if id, err := boot.ID(); id != t.Boot {
		return false, err
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return false, err
	}
	for _, entry := range processes {
		if pid := entry.Name(); pid[0] < '1' || pid[0] > '9' {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if shortage.Is(err) {
			return false, err
		}
		p := parseStat(text)
		if p.group == t.Pid && p.session == t.Guard && p.ticks >= t.Ticks && !p.hasEnded() {
			return true, nil
		}
	}
	return false, nil
}
