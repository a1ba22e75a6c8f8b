package command

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// maxDelayReads bounds the threads of a command that treeDelay reads.
const maxDelayReads = 64

// threadDelay returns how long the calling thread, which must be locked, has waited for a
// processor since it was made.
func threadDelay() time.Duration { return runDelay("/proc/thread-self") }

// treeDelay returns how long a process and its descendants have waited for a processor: of
// each process its thread that waited longest, and the child that waited longest, since
// processes that wait at the same time lose that time once. It does not include a wait that
// has not ended. A command that sleeps has waited hardly at all, even where the processor
// time of others is used up.
func treeDelay(pid int) time.Duration {
	reads := maxDelayReads
	return delayBelow(strconv.Itoa(pid), &reads)
}

func delayBelow(pid string, reads *int) time.Duration {
	tasks := "/proc/" + pid + "/task/"
	threads, _ := os.ReadDir(tasks) // without an entry of a process that has ended
	var own, below time.Duration
	for _, thread := range threads {
		if *reads == 0 {
			break
		}
		*reads--
		own = max(own, runDelay(tasks+thread.Name()))
		children, _ := os.ReadFile(tasks + thread.Name() + "/children")
		for _, child := range bytes.Fields(children) {
			below = max(below, delayBelow(string(child), reads))
		}
	}
	return own + below
}

// runDelay returns how long a thread has waited for a processor: the second number of
// schedstat (Documentation/scheduler/sched-stats.rst in Linux). It is read for each command,
// so without what package os adds.
func runDelay(task string) time.Duration {
	fd, err := unix.Open(task+"/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer closeFD(fd)
	var buf [96]byte
	n, _ := unix.Read(fd, buf[:])
	_, rest, _ := bytes.Cut(buf[:max(n, 0)], []byte(" "))
	delay, _, _ := bytes.Cut(rest, []byte(" "))
	ns, _ := strconv.ParseInt(string(delay), 10, 64) // 0 with an error
	return time.Duration(ns)
}
