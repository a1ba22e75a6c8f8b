package guard

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// IsSubreaper is whether becomeSubreaper has an effect on this system.
const IsSubreaper = true

// becomeSubreaper makes this process the parent of descendants whose parent
// exits.
func becomeSubreaper() error {
	return os.NewSyscallError("prctl PR_SET_CHILD_SUBREAPER", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// closeInherited closes the descriptors that the engine's parent has left open by mistake,
// such as a lock, which a guard that outlives the engine would hold. Those that Go opens are
// close-on-exec.
func closeInherited() {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= stderrFile {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// children returns the children of all threads of this process. It may miss a new
// one: the caller repeats it until wait4 returns ECHILD.
func children() (pids []int) {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	if len(files) == 0 {
		return childrenByParent() // a kernel without CONFIG_PROC_CHILDREN
	}
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, field := range bytes.Fields(text) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// childrenByParent finds the children among all processes of the system.
func childrenByParent() (pids []int) {
	stats, _ := filepath.Glob("/proc/[1-9]*/stat")
	for _, file := range stats {
		text, _ := os.ReadFile(file)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && parent(text) == os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parent returns the parent's ID from /proc/<pid>/stat: "1 (name) S 0 …". The name
// may contain any character, parentheses too.
func parent(stat []byte) int {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	pid, _ := strconv.Atoi(string(fields[1]))
	return pid
}
