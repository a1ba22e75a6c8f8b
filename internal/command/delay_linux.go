package command

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/cgroup"
	"github.com/sonde-probe/sonde/internal/shortage"
	"github.com/sonde-probe/sonde/probe"
)

// maxDelayReads is the maximum number of threads of a command that treeDelay reads.
const maxDelayReads = 128

// ownLoad is the number of simultaneously waiting threads per processor above which a command is itself the load.
const ownLoad = 4

// userTick is the unit of processor time in /proc/PID/stat, USER_HZ.
const userTick = 10 * time.Millisecond

// monotonic returns the time of CLOCK_MONOTONIC, which the engine and its guards share.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // never returns an error
	return time.Duration(t.Nano())
}

// taskTimes are the times of a thread: the first two numbers of its schedstat (Documentation/scheduler/sched-stats.rst in Linux).
type taskTimes struct {
	ran    time.Duration
	waited time.Duration // for a processor, without a wait that is still in progress
}

// lost returns the part of the wait that was not for other threads of the same command; all is how long all its threads have run.
// The result is negative if the others have run for longer than the wait: then the engine has waited for them as well.
func (t taskTimes) lost(all time.Duration) time.Duration { return t.waited - max(0, all-t.ran) }

// delayReader reads how long threads have waited for a processor.
type delayReader struct {
	left     int               // how many more threads it may read
	byItself bool              // the command has more threads, or its own control group that was throttled
	ran      time.Duration     // total of the processes that were read, and of their reaped children
	waited   time.Duration     // total of all threads that were read
	own      cgroup.Membership // of this process
	short    error             // why the rest is unknown: this process lacks descriptors or memory
}

func (r *delayReader) note(err error) {
	if r.short == nil && shortage.Is(err) {
		r.short = err
	}
}

// threadDelay returns how long the calling thread, which must be locked, has waited for a processor since it was created.
func (r *delayReader) threadDelay() time.Duration { return r.times("/proc/thread-self").waited }

// treeDelay returns how long a process and its descendants have lacked a processor. Of each process it counts the thread and the
// child that waited longest, since processes that wait at the same time lose that time only once. It does not count waits for each
// other, nor for the quota of a control group that this process is not in. A command that sleeps has hardly waited, even where
// others use up the processor time.
func (r *delayReader) treeDelay(pid int) time.Duration {
	r.left = maxDelayReads
	var err error
	r.own, err = cgroup.Current()
	r.note(err)
	slowest := r.slowestBelow(strconv.Itoa(pid))
	if r.byItself || r.waited > ownLoad*time.Duration(runtime.NumCPU())*slowest.waited {
		return -probe.MaxDuration
	}
	return slowest.lost(r.ran)
}

// slowestBelow returns the summed times of the longest-waiting threads of a process and its descendants.
func (r *delayReader) slowestBelow(pid string) (slowest taskTimes) {
	tasks := "/proc/" + pid + "/task/"
	threads, err := os.ReadDir(tasks) // also returns the entries read before an error, as when the process exits
	r.note(err)
	var below taskTimes
	for _, thread := range threads {
		if r.left == 0 {
			r.byItself = true
			break
		}
		r.left--
		t := r.times(tasks + thread.Name())
		r.waited += t.waited
		if t.waited >= slowest.waited {
			slowest = t
		}
		children, err := os.ReadFile(tasks + thread.Name() + "/children")
		r.note(err)
		for _, child := range bytes.Fields(children) {
			if t := r.slowestBelow(string(child)); t.waited >= below.waited {
				below = t
			}
		}
	}
	r.ran += r.processTime(pid)
	r.byItself = r.byItself || r.isThrottled(pid)
	return taskTimes{slowest.ran + below.ran, slowest.waited + below.waited}
}

// processTime returns how long a process and its reaped children have run.
func (r *delayReader) processTime(pid string) (ran time.Duration) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	r.note(err)
	fields := StatFields(stat)
	const utime, cstime = 11, 14
	if len(fields) > cstime {
		for _, field := range fields[utime : cstime+1] {
			ticks, _ := strconv.ParseInt(string(field), 10, 64) // 0 after an error
			ran += time.Duration(ticks) * userTick
		}
	}
	return ran
}

// isThrottled reports whether a process is in a control group that has used up a quota of processor time and that this process is
// not in.
func (r *delayReader) isThrottled(pid string) bool {
	group, err := cgroup.Of(pid)
	r.note(err)
	if err != nil || group == r.own {
		return false
	}
	dirs, err := group.Dirs("cpu")
	r.note(err)
	own, err := r.own.Dirs("cpu")
	r.note(err)
	for _, dir := range dirs {
		if slices.Contains(own, dir) {
			break
		}
		stat, err := cgroup.Events(dir, "cpu.stat")
		r.note(err)
		if stat["nr_throttled"] > 0 {
			return true
		}
	}
	return false
}

// times returns the times of a thread. It runs for each command, so it avoids the overhead of package os.
func (r *delayReader) times(task string) (t taskTimes) {
	fd, err := unix.Open(task+"/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		r.note(err)
		return t
	}
	defer closeFD(fd)
	var buf [96]byte
	n, _ := unix.Pread(fd, buf[:], 0)
	ran, rest, _ := bytes.Cut(buf[:max(n, 0)], []byte(" "))
	waited, _, _ := bytes.Cut(rest, []byte(" "))
	parse := func(b []byte) time.Duration {
		ns, _ := strconv.ParseInt(string(b), 10, 64) // 0 after an error
		return time.Duration(ns)
	}
	return taskTimes{parse(ran), parse(waited)}
}
