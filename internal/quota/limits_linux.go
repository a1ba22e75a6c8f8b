package quota

import (
	"math"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/cgroup"
)

// roomForProcesses returns how many processes and threads this process may add below pids.max
// of its cgroups and RLIMIT_NPROC of its user.
func roomForProcesses() (left, limit int, ok bool) {
	consider := func(most, present int64) {
		if room := int(min(most-present, math.MaxInt32)); !ok || room < left {
			left, limit, ok = room, int(min(most, math.MaxInt32)), true
		}
	}
	for _, dir := range cgroup.Current().Dirs("pids") {
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

// countDenials returns how many processes and threads were refused, how many processes
// were killed for want of memory, and how long processor time was used up. It does not
// count what happens to others below a limit that they have to themselves.
func countDenials() (refusals int64, throttled time.Duration) {
	own := cgroup.Current()
	for i, dir := range own.Dirs("pids") {
		events := cgroup.Events(dir, "pids.events.local") // of newer kernels, and version 2
		if events == nil && i == 0 {
			events = cgroup.Events(dir, "pids.events") // what any limit has refused to this cgroup
		}
		refusals += events["max"]
	}
	if dirs := own.Dirs("memory"); len(dirs) > 0 {
		for _, file := range []string{"memory.events.local", "memory.oom_control"} { // of version 2, and 1
			refusals += cgroup.Events(dirs[0], file)["oom_kill"]
		}
		if cgroup.Events(dirs[0], "memory.oom_control")["oom_kill_disable"] != 0 { // a process waits, or its system calls fail
			denied, _ := cgroup.Number(dirs[0], "memory.failcnt")
			refusals += denied
		}
	}
	for _, dir := range own.Dirs("cpu") {
		stat := cgroup.Events(dir, "cpu.stat")
		throttled += time.Duration(stat["throttled_usec"])*time.Microsecond + // of version 2
			time.Duration(stat["throttled_time"]) // of version 1
	}
	return refusals, throttled
}
