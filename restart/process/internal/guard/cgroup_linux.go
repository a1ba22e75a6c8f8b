package guard

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	cgroupfs "github.com/sonde-probe/sonde/internal/cgroup"
)

// newCgroup creates a cgroup below this process's own, so that the limits of the latter apply. It enables no
// controllers: only its cgroup.kill is used. If no cgroup can be created, newCgroup returns the empty one.
func newCgroup() Cgroup {
	own := cgroupfs.Own()
	if own == "" {
		return ""
	}
	dir, _ := os.MkdirTemp(own, "sonde-"+strconv.Itoa(os.Getpid())+"-") // "" with an error
	return Cgroup(dir)
}

// enter sets attr so that a new process starts in the cgroup. The caller calls entered after the start.
func (c Cgroup) enter(attr *syscall.SysProcAttr) (entered func(), err error) {
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

// kill kills all processes in the cgroup and its descendants. It ignores errors: the remaining processes show them.
func (c Cgroup) kill() {
	if c != "" {
		_ = os.WriteFile(filepath.Join(string(c), "cgroup.kill"), []byte("1"), 0)
	}
}

// isPopulated reports whether the cgroup has processes, or may have some because it cannot be read.
func (c Cgroup) isPopulated() bool {
	if c == "" {
		return false
	}
	text, err := os.ReadFile(filepath.Join(string(c), "cgroup.events"))
	return !errors.Is(err, fs.ErrNotExist) && !bytes.Contains(text, []byte("populated 0"))
}

const (
	// removeTries and removePause limit how long the kernel may take to report a cgroup as empty.
	removeTries = 50
	removePause = 2 * time.Millisecond
)

// remove removes the cgroup and the cgroups that the command has created below it. It retries for a while, since the
// kernel reports them as empty with a delay.
func (c Cgroup) remove() {
	for range removeTries {
		if c.removeOnce() {
			return
		}
		time.Sleep(removePause)
	}
}

// removeOnce removes the cgroup if it has no processes, and reports whether it no longer exists.
func (c Cgroup) removeOnce() (gone bool) {
	if c == "" {
		return true
	}
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
