// Package private finds directories that only this user and root can write to, for files that
// another user must not be able to replace.
package private

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// runtimeDir is where programs keep what belongs to the present boot (hier(7)).
const runtimeDir = "/run"

// RuntimeDirs returns the directories for files that belong to the present boot, the best first:
// /run, and what systemd has made for the service. Only this user and root can write to them.
func RuntimeDirs() (dirs []string) {
	ofService, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":")
	for _, dir := range []string{runtimeDir, ofService} {
		if dir, ok := usable(dir); ok {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// LoginDir returns the directory for files that may be removed when this user logs out, or "" if
// there is none.
func LoginDir() string {
	dir, _ := usable(os.Getenv("XDG_RUNTIME_DIR"))
	return dir
}

func usable(dir string) (resolved string, ok bool) {
	resolved, err := filepath.EvalSymlinks(dir)
	return resolved, err == nil && filepath.IsAbs(dir) && onlyWeWrite(resolved)
}

// onlyWeWrite reports whether this user and root alone can write to a directory.
func onlyWeWrite(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	stat, _ := info.Sys().(*syscall.Stat_t)
	return stat != nil && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}
