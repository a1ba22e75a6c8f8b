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

// reader reads limits and counts, and records in short if that fails for lack of descriptors or memory. A file that
// does not exist, or that this process must not read, is treated as no limit.
type reader struct {
	short error // why some files could not be read; nil if all could
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

// roomForProcesses returns how many processes and threads this process may add within pids.max of its cgroups and
// RLIMIT_NPROC of its user.
func roomForProcesses() (room, error) {
	var r reader
	least := r.room(r.dirs("pids"))
	if most, limited := r.userLimit(); limited {
		least = least.below(most, ownTasks.count(&r, most))
	}
	return least, r.short
}

// room returns the room within pids.max of cgroups.
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

// below returns the smaller of o and the room within another limit, most, of which present are used.
func (o room) below(most, present int64) room {
	if left := int(min(most-present, math.MaxInt32)); left < o.left {
		return room{left: left, limit: int(min(most, math.MaxInt32))}
	}
	return o
}

// userLimit returns RLIMIT_NPROC if it applies. It does not apply to root, nor to processes with certain capabilities,
// if the initial user namespace grants them (copy_process in kernel/fork.c of Linux). Root of a container may be
// another user there.
func (r *reader) userLimit() (int64, bool) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err != nil || limit.Cur == unix.RLIM_INFINITY {
		return 0, false
	}
	users, err := os.ReadFile("/proc/self/uid_map")
	r.note(err)
	return int64(min(limit.Cur, math.MaxInt64)), !isInitialNamespace(users) || os.Getuid() != 0 && !mayExceedLimits()
}

// isInitialNamespace reports whether a uid_map belongs to the initial user namespace. A kernel without user namespaces
// has no such file.
func isInitialNamespace(uidMap []byte) bool {
	fields := strings.Fields(string(uidMap))
	return len(fields) == 0 || slices.Equal(fields, []string{"0", "0", "4294967295"}) // each user maps to itself
}

func mayExceedLimits() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	err := unix.Capget(&header, &sets[0])
	return err == nil && sets[0].Effective&(1<<unix.CAP_SYS_RESOURCE|1<<unix.CAP_SYS_ADMIN) != 0
}

// ownTasks counts the processes and threads of this process's user. limiter.readMu guards it.
var ownTasks userTasks

// userTasks counts the processes and threads of a user. Counting requires reading all processes of the machine, so it
// is done rarely while the count is far below the limit.
type userTasks struct {
	counted time.Time
	n       int64
}

const (
	farFromLimit = 4096 // processes and threads
	farValidFor  = 10 * time.Second
)

// count returns the number of processes and threads, up to most. It misses those that a PID namespace or the mount
// option hidepid hides, and those of programs that may not be traced.
func (u *userTasks) count(r *reader, most int64) int64 {
	if most-u.n > farFromLimit && time.Since(u.counted) < farValidFor {
		return u.n
	}
	u.n, u.counted = r.countTasks(uint32(os.Getuid()), most), time.Now()
	return u.n
}

// countTasks reads all processes. The directory of a process belongs to its user, and its list of threads has one link
// per thread.
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

// countRefusals returns how many processes and threads were refused, plus how many processes were killed for lack of
// memory. It leaves out refusals to other cgroups by limits that do not apply to this process.
func countRefusals() (refusals int64, err error) {
	var r reader
	return r.refusals(r.dirs("pids"), r.dirs("memory")), r.short
}

// refusals is countRefusals with the directories of the cgroups with the controllers pids and memory.
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
	local, control := r.events(memory[0], "memory.events.local"), r.events(memory[0], "memory.oom_control") // of versions 2, 1
	refusals += local["oom"] + local["oom_kill"] + control["oom_kill"]
	if control["oom_kill_disable"] != 0 { // a process waits, or its system calls fail
		denied, _ := r.number(memory[0], "memory.failcnt")
		refusals += denied
	}
	return refusals
}
