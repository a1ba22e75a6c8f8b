//go:build unix

// Package private says which directories and files are safe from other users: those that only this
// user may use (Check), those that only this user and root may write to (RuntimeDirs, OfUser), and
// those in which other users cannot replace a file (CheckParent).
package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// The permissions of other users, in the mode of a file.
const (
	othersAny    = 0o077
	othersWrite  = 0o022
	groupWrites  = 0o020
	anybodyWrite = 0o002
)

// Check returns an error unless a directory or file belongs to this user, and is closed to all
// others. Root can use it too.
func Check(info fs.FileInfo) error {
	switch stat := statOf(info); {
	case int(stat.Uid) != os.Geteuid():
		return errors.New("it belongs to another user")
	case info.Mode().Perm()&othersAny != 0:
		return fmt.Errorf("it has mode %o and other users must have no access, run: chmod go-rwx", info.Mode().Perm())
	}
	return nil
}

// CheckParent returns an error if users besides this one, root, and members of this process's
// groups could put another file in a file's place, such as a symbolic link to one that only this
// user can write to. A user's own group often has write permission (umask in login.defs(5)), and so
// has the group of a volume (fsGroup in Kubernetes). It does not check the directories above.
func CheckParent(name string) error {
	dir := filepath.Dir(name)
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	mode, owner := info.Mode().Perm(), statOf(info).Uid
	switch {
	case owner != 0 && int(owner) != os.Geteuid():
		return fmt.Errorf("%s: directory %s belongs to user %d, who decides what its files are, use another one or: chown %d %[2]s", name, dir, owner, os.Geteuid())
	case mode&anybodyWrite != 0:
		return fmt.Errorf("%s: directory %s is writable for all users, use another one or: chmod o-w %[2]s", name, dir)
	case mode&groupWrites != 0 && !isOurs(statOf(info).Gid):
		return fmt.Errorf("%s: directory %s is writable for group %d, to which this process does not belong, use another one or: chmod g-w %[2]s", name, dir, statOf(info).Gid)
	}
	return nil
}

// CheckDirs returns an error if users besides this one, root, and members of this process's groups could
// replace a directory above a file: they would decide which file it is. A directory that does not exist is
// none.
func CheckDirs(name string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(name))
	if err != nil {
		return nil
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		owner, mode := int(statOf(info).Uid), info.Mode()
		switch isSticky := mode&os.ModeSticky != 0; {
		case owner != 0 && owner != os.Geteuid():
			return fmt.Errorf("directory %s belongs to user %d", dir, owner)
		case mode.Perm()&anybodyWrite != 0 && !isSticky:
			return fmt.Errorf("directory %s is writable for all users", dir)
		case mode.Perm()&groupWrites != 0 && !isSticky && !isOurs(statOf(info).Gid):
			return fmt.Errorf("directory %s is writable for group %d", dir, statOf(info).Gid)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// isOurs reports whether this process belongs to a group.
func isOurs(gid uint32) bool {
	supplementary, _ := os.Getgroups()
	return int(gid) == os.Getegid() || slices.Contains(supplementary, int(gid))
}

// statOf returns the owner of a file. It panics if info is not from package os.
func statOf(info fs.FileInfo) *syscall.Stat_t { return info.Sys().(*syscall.Stat_t) }

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

// loginDir returns the directory for files that may be removed when this user logs out, or "" if
// there is none.
func loginDir() string {
	dir, _ := usable(os.Getenv("XDG_RUNTIME_DIR"))
	return dir
}

// OfUser returns the best of RuntimeDirs and loginDir that this user can write to, or "" if there
// is none.
func OfUser() string {
	for _, dir := range append(RuntimeDirs(), loginDir()) {
		if dir != "" && syscall.Access(dir, writable) == nil {
			return dir
		}
	}
	return ""
}

// writable is W_OK of access(2).
const writable = 2

// usable returns the path of a directory without symbolic links, and whether this user and root
// alone can write to it.
func usable(dir string) (resolved string, ok bool) {
	if !filepath.IsAbs(dir) {
		return "", false
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", false
	}
	info, err := os.Lstat(resolved)
	if err != nil || !info.IsDir() || info.Mode().Perm()&othersWrite != 0 {
		return "", false
	}
	uid := statOf(info).Uid
	return resolved, uid == 0 || int(uid) == os.Geteuid()
}
