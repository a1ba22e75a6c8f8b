package command

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/shortage"
)

// maxDelayReads bounds the threads of a command that treeDelay reads.
const maxDelayReads = 64

// delayReader reads how long threads have waited for a processor.
type delayReader struct {
	left  int   // how many threads it may read
	short error // why the rest is unknown: this process lacks descriptors or memory
}

func (r *delayReader) note(err error) {
	if r.short == nil && shortage.Is(err) {
		r.short = err
	}
}

// threadDelay returns how long the calling thread, which must be locked, has waited for a
// processor since it was made.
func (r *delayReader) threadDelay() time.Duration { return r.runDelay("/proc/thread-self") }

// treeDelay returns how long a process and its descendants have waited for a processor: of
// each process its thread that waited longest, and the child that waited longest, since
// processes that wait at the same time lose that time once. It does not include a wait that
// has not ended. A command that sleeps has waited hardly at all, even where the processor
// time of others is used up.
func (r *delayReader) treeDelay(pid int) time.Duration {
	r.left = maxDelayReads
	return r.delayBelow(strconv.Itoa(pid))
}

func (r *delayReader) delayBelow(pid string) time.Duration {
	tasks := "/proc/" + pid + "/task/"
	threads, err := os.ReadDir(tasks) // without an entry of a process that has ended
	r.note(err)
	var own, below time.Duration
	for _, thread := range threads {
		if r.left == 0 {
			break
		}
		r.left--
		own = max(own, r.runDelay(tasks+thread.Name()))
		children, err := os.ReadFile(tasks + thread.Name() + "/children")
		r.note(err)
		for _, child := range bytes.Fields(children) {
			below = max(below, r.delayBelow(string(child)))
		}
	}
	return own + below
}

// runDelay returns how long a thread has waited for a processor: the second number of
// schedstat (Documentation/scheduler/sched-stats.rst in Linux). It is read for each command,
// so without what package os adds.
func (r *delayReader) runDelay(task string) time.Duration {
	fd, err := unix.Open(task+"/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		r.note(err)
		return 0
	}
	defer closeFD(fd)
	return parseDelay(fd)
}

// parseDelay returns the second number of a schedstat.
func parseDelay(fd int) time.Duration {
	var buf [96]byte
	n, _ := unix.Pread(fd, buf[:], 0)
	_, rest, _ := bytes.Cut(buf[:max(n, 0)], []byte(" "))
	delay, _, _ := bytes.Cut(rest, []byte(" "))
	ns, _ := strconv.ParseInt(string(delay), 10, 64) // 0 with an error
	return time.Duration(ns)
}
