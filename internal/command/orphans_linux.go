package command

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// BecomeSubreaper makes this process the parent of its descendants whose parent exits.
func BecomeSubreaper() error {
	return os.NewSyscallError("prctl PR_SET_CHILD_SUBREAPER", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// hasLists reports whether the kernel provides lists of children, CONFIG_PROC_CHILDREN.
var hasLists = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
})

// Children returns the children of all threads of a process. It may miss a new child.
func Children(pid int) (children []int) {
	if !hasLists() {
		return childrenByParent(pid)
	}
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, file := range files {
		text, _ := os.ReadFile(file) // an error means that the thread has exited
		children = append(children, parsePids(text)...)
	}
	return children
}

func parsePids(text []byte) (pids []int) {
	for _, field := range bytes.Fields(text) {
		if pid, err := strconv.Atoi(string(field)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// childrenByParent finds the children by scanning all processes of the system.
func childrenByParent(parent int) (children []int) {
	for _, pid := range allProcesses() {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		fields := StatFields(stat)
		if len(fields) > 1 && string(fields[1]) == strconv.Itoa(parent) {
			children = append(children, pid)
		}
	}
	return children
}

// StatFields returns the fields after the name in /proc/PID/stat, "1 (name) S 0 …": the first one is the state. The name may
// contain any character, even parentheses.
func StatFields(stat []byte) [][]byte { return bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) }

func allProcesses() (pids []int) {
	dirs, _ := filepath.Glob("/proc/[1-9]*")
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// rlimitLocks is RLIMIT_LOCKS, which has limited nothing since Linux 2.4.25. Each command has its own soft limit, the tag. Its
// descendants inherit the tag whatever becomes of their parents, groups, sessions and descriptors.
const rlimitLocks = 10

// tagOf returns the tag of a process, or 0 if it has none.
func tagOf(pid int) uint64 {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	_, line, _ := bytes.Cut(text, []byte("Max file locks"))
	if fields := bytes.Fields(line); len(fields) > 0 {
		tag, _ := strconv.ParseUint(string(fields[0]), 10, 64) // "unlimited" means no tag
		return tag
	}
	return 0
}

// orphans are the descendants of commands whose own parent has exited, so that the guard is now their parent.
type orphans struct {
	list    int    // the descriptor of the list of children; -1 if there is none
	lastTag uint64 // the upper half identifies the guard
	left    bool   // some were killed and have not exited, or may have left new orphans
	calm    int    // number of processes of the system when no command had too many
	buf     [16 << 10]byte
}

func newOrphans(nonce uint64) orphans {
	list, err := unix.Open("/proc/thread-self/children", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		list = -1
	}
	return orphans{list: list, lastTag: nonce << 32}
}

// tagNext gives this process a new tag, for the next command to inherit.
func (o *orphans) tagNext() (tag uint64) {
	o.lastTag++
	_ = unix.Setrlimit(rlimitLocks, &unix.Rlimit{Cur: o.lastTag, Max: unix.RLIM_INFINITY}) // an error: the next sweep kills orphans
	return o.lastTag
}

// children returns the children of this process, all of which belong to this thread. The kernel returns one page of them at a time.
func (o *orphans) children() (pids []int) {
	const page = 4 << 10 // the smallest
	if o.list < 0 {
		return Children(os.Getpid())
	}
	for at := 0; ; {
		n, err := unix.Pread(o.list, o.buf[:], int64(at))
		if err != nil || n == 0 {
			return pids
		}
		pids = append(pids, parsePids(o.buf[:n])...)
		if at += n; n < page/2 {
			return pids
		}
	}
}

// sweep kills the orphans of commands that no longer run, and reaps those that have exited.
func (o *orphans) sweep(commands map[int]*guarded) {
	o.left = false
	for _, pid := range o.children() {
		if commands[pid] != nil {
			continue
		}
		if reaped, _ := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); reaped == pid {
			o.left = true
			continue
		}
		if findTag(commands, tagOf(pid)) == nil {
			o.left = true
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// findTag returns the running command with a tag that was not killed, or nil.
func findTag(commands map[int]*guarded, tag uint64) *guarded {
	for _, c := range commands {
		if c.tag == tag && !c.killed {
			return c
		}
	}
	return nil
}

// setCalm records the number of processes of the system before a command adds some.
func (o *orphans) setCalm() {
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info) // never returns an error
	o.calm = int(info.Procs)
}

// findTooMany returns a command with more than maxProcesses, or nil. It counts processes only if the system has at least that many
// more than before.
func (o *orphans) findTooMany(commands map[int]*guarded) *guarded {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil || int(info.Procs) < o.calm+maxProcesses {
		o.calm = min(o.calm, int(info.Procs))
		return nil
	}
	counts := make(map[*guarded]int)
	for _, pid := range o.children() {
		c := commands[pid]
		if c == nil {
			c = findTag(commands, tagOf(pid))
		}
		if c == nil {
			continue
		}
		if counts[c] += countTree(pid, maxProcesses-counts[c]); counts[c] > maxProcesses {
			return c
		}
	}
	o.calm = int(info.Procs)
	return nil
}

// countTree counts a process and its descendants, and stops counting above room.
func countTree(pid, room int) (n int) {
	n = 1
	for _, child := range Children(pid) {
		if n > room {
			break
		}
		n += countTree(child, room-n)
	}
	return n
}

// killTagged kills a process if its tag is that of a guard. A process that reuses its ID meanwhile is not killed. It reports
// whether it killed the process.
func killTagged(pid int, nonce uint64) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer closeFD(fd)
	tag := tagOf(pid)
	return tag != 0 && tag>>32 == nonce && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// endTagged kills the processes left by a guard that was killed: the kernel kills the guard's commands, but not their descendants.
func endTagged(nonce uint64) {
	for range 100 {
		found := false
		for _, pid := range allProcesses() {
			found = killTagged(pid, nonce) || found
		}
		if !found {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
