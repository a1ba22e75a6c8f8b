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
	room := maxTree
	tree := holdDescendants(leader, &room)
	KillGroup(leader)
	for _, pidfd := range tree {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) // an error: it has exited
		closeFD(pidfd)
	}
}

// holdDescendants returns a pidfd of each descendant of a process, of room descendants at most: it
// takes from room what it holds.
func holdDescendants(pid int, room *int) (held []int) {
	found := map[int]int{} // pidfds
	for _, child := range childrenOf(pid) {
		if *room == 0 {
			break
		}
		if pidfd, err := unix.PidfdOpen(child, 0); err == nil {
			found[child] = pidfd
			*room--
		}
	}
	after := childrenOf(pid)
	for child, pidfd := range found {
		if !slices.Contains(after, child) { // the pidfd may be of another process, which has got its ID
			closeFD(pidfd)
			*room++
			continue
		}
		held = append(append(held, pidfd), holdDescendants(child, room)...)
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
