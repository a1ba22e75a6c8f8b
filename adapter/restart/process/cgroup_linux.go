package process

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// cgroup is the directory of a cgroup (version 2) that holds one life. The empty
// one is none, and doing anything with it does nothing.
type cgroup string

// newCgroup makes a cgroup below this process's own, so that the limits of that
// one hold for it. It has no controllers: it is there for its kill. It returns
// the empty cgroup where none can be made.
func newCgroup() cgroup {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	membership, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	own := ownCgroup(string(mounts), string(membership))
	if own == "" {
		return ""
	}
	dir, err := os.MkdirTemp(own, "sonde-")
	if err != nil {
		return ""
	}
	return cgroup(dir)
}

// ownCgroup finds the directory of this process's cgroup, or "". Mounts is
// /proc/self/mountinfo, membership is /proc/self/cgroup: see proc(5), cgroups(7).
func ownCgroup(mounts, membership string) string {
	path, member := "", false
	for line := range strings.Lines(membership) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			path, member = rest, true
		}
	}
	if !member || strings.HasPrefix(path, "/..") { // /..: outside of what can be seen here
		return ""
	}
	for line := range strings.Lines(mounts) {
		mount, super, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if len(fields) < 5 || !strings.HasPrefix(super, "cgroup2 ") {
			continue
		}
		// A container may see only a part of the hierarchy, which begins at root.
		root, at := fields[3], fields[4]
		if below, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(below) {
			return filepath.Join(at, below)
		}
	}
	return ""
}

// enter has a new process start in the cgroup. The caller calls leave when it has
// started.
func (c cgroup) enter(attr *syscall.SysProcAttr) (leave func(), err error) {
	if c == "" {
		return func() {}, nil
	}
	dir, err := os.Open(string(c))
	if err != nil {
		return nil, err
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	return func() { _ = dir.Close() }, nil
}

// kill kills every process in the cgroup and below. That it could not is seen by
// what is left.
func (c cgroup) kill() {
	if c != "" {
		_ = os.WriteFile(filepath.Join(string(c), "cgroup.kill"), []byte("1"), 0)
	}
}

// remove removes the cgroup and what the command may have made below it. The
// kernel may need a moment until it agrees that they are empty.
func (c cgroup) remove() {
	if c == "" {
		return
	}
	for range 50 {
		if c.removeOnce() {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (c cgroup) removeOnce() (done bool) {
	var dirs []string
	_ = filepath.WalkDir(string(c), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) {
		_ = syscall.Rmdir(dir)
	}
	_, err := os.Stat(string(c))
	return os.IsNotExist(err)
}
