package process

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// adopts says that adopt makes orphans children of the guard.
const adopts = true

// adopt makes this process the parent of every descendant whose own parent ends.
func adopt() error {
	return os.NewSyscallError("prctl PR_SET_CHILD_SUBREAPER", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// closeRestOnExec marks every descriptor but the standard ones. Kernels before
// 5.11 cannot; there, what was left open by mistake stays so.
func closeRestOnExec() {
	_ = unix.CloseRange(ordersFile, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
}

// children returns the children of this process, of all its threads. It may miss
// one that has just come: the caller asks again until wait4 knows of none.
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

// childrenByParent looks at all processes of the system.
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

// parent reads the parent's ID from /proc/<pid>/stat: "1 (name) S 0 …". The name
// may hold anything, parentheses included.
func parent(stat []byte) int {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	pid, _ := strconv.Atoi(string(fields[1]))
	return pid
}
