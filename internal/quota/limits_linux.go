package quota

import (
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/cgroup"
	"github.com/sonde-probe/sonde/internal/shortage"
)

// reader reads limits and counts. A file that cannot be read for want of descriptors or
// memory says nothing; one that this process may not read, or that does not exist, limits
// nothing that could be known.
type reader struct {
	short error // why not all could be read
}

func (r *reader) note(err error) {
	if r.short == nil && shortage.Is(err) {
		r.short = err
	}
}

// dirs returns the directories of this process's cgroup with a controller.
func (r *reader) dirs(controller string) []string {
	own, err := cgroup.Current()
	r.note(err)
	dirs, err := own.Dirs(controller)
	r.note(err)
	return dirs
}

func (r *reader) number(dir, file string) (int64, bool) {
	n, ok, err := cgroup.Number(dir, file)
	r.note(err)
	return n, ok
}

func (r *reader) events(dir, file string) map[string]int64 {
	events, err := cgroup.Events(dir, file)
	r.note(err)
	return events
}

// roomForProcesses returns how many processes and threads this process may add below
// pids.max of its cgroups and RLIMIT_NPROC of its user.
func roomForProcesses() (room, error) {
	var r reader
	least := r.room(r.dirs("pids"))
	if most, limited := r.userLimit(); limited {
		least = least.below(most, ownTasks.count(&r, most))
	}
	return least, r.short
}

// room returns the room below pids.max of cgroups.
func (r *reader) room(dirs []string) room {
	least := unlimited
	for _, dir := range dirs {
		most, limited := r.number(dir, "pids.max")
		if !limited {
			continue
		}
		if present, known := r.number(dir, "pids.current"); known {
			least = least.below(most, present)
		}
	}
	return least
}

// below returns what room there is if there may be so many, too, of which some are present.
func (o room) below(most, present int64) room {
	if left := int(min(most-present, math.MaxInt32)); left < o.left {
		return room{left: left, limit: int(min(most, math.MaxInt32))}
	}
	return o
}

// userLimit returns RLIMIT_NPROC if it applies: not to root and to processes with certain
// capabilities, if the initial user namespace grants them (copy_process in kernel/fork.c of
// Linux). Root of a container may be another user there.
func (r *reader) userLimit() (int64, bool) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err != nil || limit.Cur == unix.RLIM_INFINITY {
		return 0, false
	}
	users, err := os.ReadFile("/proc/self/uid_map")
	r.note(err)
	return int64(min(limit.Cur, math.MaxInt64)), !isInitialNamespace(users) || os.Getuid() != 0 && !mayExceedLimits()
}

// isInitialNamespace reports whether a uid_map is that of the initial user namespace. A
// kernel without user namespaces has no such file.
func isInitialNamespace(uidMap []byte) bool {
	fields := strings.Fields(string(uidMap))
	return len(fields) == 0 || slices.Equal(fields, []string{"0", "0", "4294967295"}) // all users are themselves
}

func mayExceedLimits() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	err := unix.Capget(&header, &sets[0])
	return err == nil && sets[0].Effective&(1<<unix.CAP_SYS_RESOURCE|1<<unix.CAP_SYS_ADMIN) != 0
}

// ownTasks are the processes and threads of this process's user. limiter.readMu guards it.
var ownTasks userTasks

// userTasks counts the processes and threads of a user, which means a look at all processes
// of the machine: seldom while there are far fewer than the user may have.
type userTasks struct {
	counted time.Time
	n       int64
}

const (
	farFromLimit = 4096 // processes and threads
	farValidFor  = 10 * time.Second
)

// count returns the number of processes and threads, up to most. Those that a PID namespace
// or the mount option hidepid hides are missing, and those of programs that may not be
// traced.
func (u *userTasks) count(r *reader, most int64) int64 {
	if most-u.n > farFromLimit && time.Since(u.counted) < farValidFor {
		return u.n
	}
	u.n, u.counted = r.countTasks(uint32(os.Getuid()), most), time.Now()
	return u.n
}

// countTasks looks at all processes. The directory of a process belongs to its user, and
// its list of threads has a link for each.
func (r *reader) countTasks(uid uint32, most int64) (n int64) {
	names, err := os.ReadDir("/proc")
	r.note(err)
	for _, name := range names {
		if c := name.Name()[0]; c < '0' || c > '9' {
			continue
		}
		var tasks syscall.Stat_t
		if syscall.Stat("/proc/"+name.Name()+"/task", &tasks) == nil && tasks.Uid == uid {
			n += max(int64(tasks.Nlink)-2, 1)
		}
		if n >= most {
			break
		}
	}
	return n
}

// countRefusals returns how many processes and threads were refused, and how many processes
// were killed for want of memory. It does not count what happens to others below a limit
// that they have to themselves.
func countRefusals() (refusals int64, err error) {
	var r reader
	return r.refusals(r.dirs("pids"), r.dirs("memory")), r.short
}

// refusals is countRefusals with the directories of the cgroups with the controllers pids
// and memory.
func (r *reader) refusals(pids, memory []string) (refusals int64) {
	for i, dir := range pids {
		events := r.events(dir, "pids.events.local") // of newer kernels, and version 2
		if len(events) == 0 && i == 0 {
			events = r.events(dir, "pids.events") // what any limit has refused to this cgroup
		}
		refusals += events["max"]
	}
	if len(memory) == 0 {
		return refusals
	}
	local, control := r.events(memory[0], "memory.events.local"), r.events(memory[0], "memory.oom_control") // of version 2, and 1
	refusals += local["oom"] + local["oom_kill"] + control["oom_kill"]
	if control["oom_kill_disable"] != 0 { // a process waits, or its system calls fail
		denied, _ := r.number(memory[0], "memory.failcnt")
		refusals += denied
	}
	return refusals
}
