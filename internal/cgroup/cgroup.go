// Package cgroup finds the control groups of this process and reads their files.
package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Own returns the directory of this process's cgroup of version 2, or "".
func Own() string {
	if dirs := find(controlFiles(Version2)); len(dirs) > 0 {
		return dirs[0]
	}
	return ""
}

// Version2 stands for the hierarchy of version 2, whatever its controllers.
const Version2 = ""

// Dirs returns the directories of this process's cgroup that has a controller, such as
// pids, and of the cgroups above it that can be seen, its own first. Without such a
// hierarchy of version 1 they are those of version 2, and none where there is no cgroup.
func Dirs(controller string) []string {
	if dirs := find(controlFiles(controller)); len(dirs) > 0 {
		return dirs
	}
	return find(controlFiles(Version2))
}

// controlFiles returns the arguments of find for this process.
func controlFiles(controller string) (mounts, membership, _ string) {
	m, _ := os.ReadFile("/proc/self/mountinfo") // from nothing find returns nothing
	p, _ := os.ReadFile("/proc/self/cgroup")
	return string(m), string(p), controller
}

// find returns the directories of the cgroup of one hierarchy. Mounts and membership are
// the contents of /proc/self/mountinfo and /proc/self/cgroup: see proc(5), cgroups(7).
func find(mounts, membership, controller string) []string {
	path, member := memberOf(membership, controller)
	if !member || strings.HasPrefix(path, "/..") { // /..: outside the cgroup namespace
		return nil
	}
	for line := range strings.Lines(mounts) {
		mount, super, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if len(fields) < 5 || !holds(super, controller) {
			continue
		}
		// A container may see only the part of the hierarchy below root.
		root, at := fields[3], fields[4]
		if below, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(below) {
			return upwards(filepath.Join(at, below), at)
		}
	}
	return nil
}

// memberOf returns the path of the process in the hierarchy with a controller.
func memberOf(membership, controller string) (path string, ok bool) {
	for line := range strings.Lines(membership) {
		number, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, at, found := strings.Cut(rest, ":")
		version2 := number == "0" && controllers == ""
		if found && (controller == Version2 && version2 ||
			controller != Version2 && slices.Contains(strings.Split(controllers, ","), controller)) {
			path, ok = at, true
		}
	}
	return path, ok
}

// holds reports whether the file system of a mount is the hierarchy with a controller.
func holds(super, controller string) bool {
	if controller == Version2 {
		return strings.HasPrefix(super, "cgroup2 ")
	}
	fields := strings.Fields(super)
	return len(fields) == 3 && fields[0] == "cgroup" && slices.Contains(strings.Split(fields[2], ","), controller)
}

// upwards returns a directory and those above it, up to top.
func upwards(dir, top string) []string {
	dirs := []string{dir}
	for dir != top && dir != "/" && dir != "." {
		dir = filepath.Dir(dir)
		dirs = append(dirs, dir)
	}
	return dirs
}

// Number returns the number in a file of a cgroup. It returns false if there is none, such
// as in a limit of "max".
func Number(dir, file string) (int64, bool) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// Event returns the number of a key in a file of keys and numbers, and false if there is
// none.
func Event(dir, file, key string) (int64, bool) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == key {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
