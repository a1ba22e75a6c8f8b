// Package cgroup finds the control groups of this process and reads their files.
package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// unified stands for the hierarchy of version 2, regardless of controllers.
const unified = ""

// Own returns the directory of this process's cgroup of version 2, or "".
func Own() string {
	m, _ := Current() // on an error m is empty, and find returns no directories
	if dirs, _ := m.find(unified); len(dirs) > 0 {
		return dirs[0]
	}
	return ""
}

// Membership is the content of /proc/<pid>/cgroup: the cgroups of a process.
type Membership string

// Current returns the membership of this process. It changes if the process is moved.
func Current() (Membership, error) { return Of("self") }

// Of returns the membership of a process. When a process exits, it leaves all its cgroups of version 1.
func Of(pid string) (Membership, error) {
	text, err := os.ReadFile("/proc/" + pid + "/cgroup")
	return Membership(text), err
}

// Dirs returns the directories of the process's cgroup in the hierarchy of a controller, such as pids, and of the
// visible cgroups above it, its own first. Without such a hierarchy of version 1, it returns those of version 2, or
// none if there are no cgroups. It is safe for concurrent use. An error means that the mounts cannot be read.
func (m Membership) Dirs(controller string) ([]string, error) {
	if dirs, err := m.find(controller); len(dirs) > 0 || err != nil {
		return dirs, err
	}
	return m.find(unified)
}

// found caches the directories of the latest membership by controller, since finding them requires reading all mounts.
var found struct {
	mu     sync.Mutex // guards the fields below
	member Membership
	dirs   map[string][]string
}

func (m Membership) find(controller string) ([]string, error) {
	found.mu.Lock()
	defer found.mu.Unlock()
	if found.dirs == nil || found.member != m {
		found.member, found.dirs = m, make(map[string][]string)
	}
	dirs, known := found.dirs[controller]
	if !known {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return nil, err
		}
		dirs = find(string(mounts), string(m), controller)
		found.dirs[controller] = dirs
	}
	return dirs, nil
}

// find returns the directories of a cgroup in one hierarchy. mounts and membership are the contents of
// /proc/self/mountinfo and /proc/self/cgroup: see proc(5), cgroups(7).
func find(mounts, membership, controller string) []string {
	path, member := memberOf(membership, controller)
	if !member || isOutside(path) {
		return nil
	}
	for line := range strings.Lines(mounts) {
		mount, super, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if len(fields) < 5 || !holds(super, controller) {
			continue
		}
		// A container may see only the part of the hierarchy below root.
		root, at := unescape.Replace(fields[3]), unescape.Replace(fields[4])
		if below, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(below) && !isOutside(root) {
			return upwards(filepath.Join(at, below), at)
		}
	}
	return nil
}

// isOutside reports whether the path of a cgroup is outside the cgroup namespace.
func isOutside(path string) bool { return path == "/.." || strings.HasPrefix(path, "/../") }

// unescape decodes the escape sequences of mountinfo for characters that would end a field.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// memberOf returns the path of the process's cgroup in the hierarchy of a controller.
func memberOf(membership, controller string) (path string, ok bool) {
	for line := range strings.Lines(membership) {
		number, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, at, found := strings.Cut(rest, ":")
		version2 := number == "0" && controllers == ""
		if found && (controller == unified && version2 ||
			controller != unified && slices.Contains(strings.Split(controllers, ","), controller)) {
			path, ok = at, true
		}
	}
	return path, ok
}

// holds reports whether the file system of a mount is the hierarchy of a controller.
func holds(super, controller string) bool {
	if controller == unified {
		return strings.HasPrefix(super, "cgroup2 ")
	}
	fields := strings.Fields(super)
	return len(fields) == 3 && fields[0] == "cgroup" && slices.Contains(strings.Split(fields[2], ","), controller)
}

// upwards returns a directory and its parents, up to top.
func upwards(dir, top string) []string {
	dirs := []string{dir}
	for dir != top && dir != "/" && dir != "." {
		dir = filepath.Dir(dir)
		dirs = append(dirs, dir)
	}
	return dirs
}

// Number returns the number in a file of a cgroup. It returns false if the file has no number, such as a limit of
// "max", or does not exist; neither is an error.
func Number(dir, file string) (n int64, ok bool, err error) {
	text, err := read(dir, file)
	if err != nil {
		return 0, false, err
	}
	n, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil, nil
}

// read reads a file of a cgroup. A file that does not exist counts as empty.
func read(dir, file string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Events returns the numbers by key in a file such as memory.events. It returns none, and no error, if the file does
// not exist.
func Events(dir, file string) (map[string]int64, error) {
	text, err := read(dir, file)
	if err != nil {
		return nil, err
	}
	events := make(map[string]int64)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 {
			if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				events[fields[0]] = n
			}
		}
	}
	return events, nil
}
