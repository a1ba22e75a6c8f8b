package command

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxTree bounds the descendants that killTree finds, each of which takes a descriptor meanwhile.
const maxTree = 256

// killTree sends SIGKILL to a process group, and to the descendants of its leader that have left it
// (setsid). It does not find one whose parent has exited. The leader must not be reaped yet.
func killTree(leader int) {
	tree := holdDescendants(leader, nil)
	KillGroup(leader)
	for _, pidfd := range tree {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) // an error: it has exited
		closeFD(pidfd)
	}
}

// holdDescendants adds a pidfd of each descendant of a process to those of others.
func holdDescendants(pid int, held []int) []int {
	found := map[int]int{} // pidfds
	for _, child := range childrenOf(pid) {
		if len(held)+len(found) >= maxTree {
			break
		}
		if pidfd, err := unix.PidfdOpen(child, 0); err == nil {
			found[child] = pidfd
		}
	}
	after := childrenOf(pid)
	for child, pidfd := range found {
		if !slices.Contains(after, child) { // the pidfd may be of another process, which has got its ID
			closeFD(pidfd)
			continue
		}
		held = holdDescendants(child, append(held, pidfd))
	}
	return held
}

// childrenOf returns the children of all threads of a process, none on a kernel without
// CONFIG_PROC_CHILDREN.
func childrenOf(pid int) (children []int) {
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, file := range files {
		text, _ := os.ReadFile(file) // an error: the thread has ended
		for _, field := range bytes.Fields(text) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}
