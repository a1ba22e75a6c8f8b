package command

import (
	"math"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/cgroup"
)

// processes limits the commands of this process.
var processes = limiter{room: processRoom}

// pidsDirs are the cgroups whose pids.max applies to this process and to its commands.
var pidsDirs = sync.OnceValue(func() []string { return cgroup.Dirs("pids") })

// processRoom returns how many processes and threads this process may add below pids.max
// of its cgroups and RLIMIT_NPROC of its user.
func processRoom() (left, limit int, ok bool) {
	consider := func(most, present int64) {
		if room := int(min(most-present, math.MaxInt32)); !ok || room < left {
			left, limit, ok = room, int(min(most, math.MaxInt32)), true
		}
	}
	for _, dir := range pidsDirs() {
		most, limited := cgroup.Number(dir, "pids.max")
		if !limited {
			continue
		}
		if present, known := cgroup.Number(dir, "pids.current"); known {
			consider(most, present)
		}
	}
	if most, limited := userLimit(); limited {
		consider(most, userTasks(most))
	}
	return left, limit, ok
}

// userLimit returns RLIMIT_NPROC. It does not apply to root.
func userLimit() (int64, bool) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit)
	return int64(min(limit.Cur, math.MaxInt64)), err == nil && limit.Cur != unix.RLIM_INFINITY && os.Geteuid() != 0
}

// userTasks counts the processes and threads of this user, up to most. The directory of a
// process belongs to its user, and its list of threads has a link for each.
func userTasks(most int64) (n int64) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	uid := uint32(os.Geteuid())
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

// denials are what the system has denied to the commands of this process.
var denials = denialCounter{read: countDenials}

// countDenials returns how many processes the cgroups of this process were refused, and
// how many of its processes were killed for want of memory.
func countDenials() (n int64) {
	for _, dir := range pidsDirs() {
		refused, _ := cgroup.Event(dir, "pids.events", "max")
		n += refused
	}
	if dirs := memoryDirs(); len(dirs) > 0 {
		for _, file := range []string{"memory.events", "memory.oom_control"} { // of version 2, and 1
			killed, _ := cgroup.Event(dirs[0], file, "oom_kill")
			n += killed
		}
	}
	return n
}

// memoryDirs begins with the cgroup that counts the processes killed for want of memory.
var memoryDirs = sync.OnceValue(func() []string { return cgroup.Dirs("memory") })
