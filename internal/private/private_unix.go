//go:build unix

// Package private checks which directories and files are safe from other users: those that only this user may use
// (Check), those that only this user and root may write to (RuntimeDirs, OfUser), and those in which other users cannot
// replace a file (CheckParent).
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

// Check returns an error unless a directory or file belongs to this user and is inaccessible to all others except root.
func Check(info fs.FileInfo) error {
	switch stat := statOf(info); {
	case int(stat.Uid) != os.Geteuid():
		return errors.New("it belongs to another user")
	case info.Mode().Perm()&othersAny != 0:
		return fmt.Errorf("its mode %o gives other users access; run: chmod go-rwx", info.Mode().Perm())
	}
	return nil
}

// CheckParent returns an error if users other than this one, root, and members of this process's groups could replace a
// file in its directory, for instance by a symbolic link to a file that only this user can write to. Write permission
// for a group of this process is accepted: a user's own group often has it (umask in login.defs(5)), and so does the
// group of a volume (fsGroup in Kubernetes). CheckParent does not check the directories above.
func CheckParent(name string) error {
	dir := filepath.Dir(name)
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if problem, cure := problemOf(info, info.Mode().Perm()); problem != "" {
		return fmt.Errorf("%s: directory %s %s; use another directory, or run: %s %[2]s", name, dir, problem, cure)
	}
	return nil
}

// problemOf returns the problem if users other than this one, root, and members of this process's groups can replace
// files in a directory with the given permissions, and a command that fixes it; "" if they cannot.
func problemOf(dir fs.FileInfo, permissions fs.FileMode) (problem, cure string) {
	switch owner, group := statOf(dir).Uid, statOf(dir).Gid; {
	case owner != 0 && int(owner) != os.Geteuid():
		return fmt.Sprintf("belongs to user %d, who can replace its files", owner), fmt.Sprintf("chown %d", os.Geteuid())
	case permissions&anybodyWrite != 0:
		return "is writable by all users", "chmod o-w"
	case permissions&groupWrites != 0 && !isOurs(group):
		return fmt.Sprintf("is writable by group %d, to which this process does not belong", group), "chmod g-w"
	}
	return "", ""
}

// CheckDirs returns an error if users other than this one, root, and members of this process's groups could replace a
// directory above a file, and thereby the file. It returns nil if the file's directory does not exist.
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
		permissions := info.Mode().Perm()
		if info.Mode()&os.ModeSticky != 0 {
			permissions = 0 // others cannot replace its entries
		}
		if problem, _ := problemOf(info, permissions); problem != "" {
			return fmt.Errorf("directory %s %s", dir, problem)
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

// runtimeDir is the directory for files that belong to the current boot (hier(7)).
const runtimeDir = "/run"

// RuntimeDirs returns the directories for files that belong to the current boot, the best first: /run, and the one that
// systemd created for the service. Only this user and root can write to them.
func RuntimeDirs() (dirs []string) {
	for _, dir := range runtimeDirs() {
		if dir, err := usable(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func runtimeDirs() []string {
	ofService, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":")
	return []string{runtimeDir, ofService}
}

// OfUser returns the first usable directory to which this user can write: one of RuntimeDirs, or else $XDG_RUNTIME_DIR,
// whose files may be removed when this user logs out. The error explains why there is none.
func OfUser() (string, error) {
	var why []string
	for _, name := range append(runtimeDirs(), os.Getenv("XDG_RUNTIME_DIR")) {
		if name == "" {
			continue
		}
		dir, err := usable(name)
		if err == nil && syscall.Access(dir, writable) != nil {
			err = fmt.Errorf("%s is not writable by this user", name)
		}
		if err == nil {
			return dir, nil
		}
		why = append(why, err.Error())
	}
	return "", fmt.Errorf("no usable runtime directory: %s; set XDG_RUNTIME_DIR to a directory that only this user can write to", strings.Join(why, ", "))
}

// writable is W_OK of access(2).
const writable = 2

// usable returns the path of a directory without symbolic links, or an error unless only this user and root can write
// to it.
func usable(dir string) (resolved string, err error) {
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("%q is not an absolute path", dir)
	}
	if resolved, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	info, err := os.Lstat(resolved)
	if err != nil {
		return "", err
	}
	switch uid := statOf(info).Uid; {
	case !info.IsDir():
		return "", fmt.Errorf("%s is not a directory", dir)
	case uid != 0 && int(uid) != os.Geteuid():
		return "", fmt.Errorf("%s belongs to user %d", dir, uid)
	case info.Mode().Perm()&othersWrite != 0:
		return "", fmt.Errorf("%s has mode %o, so that other users can write to it (chmod go-w)", dir, statOf(info).Mode&0o7777)
	}
	return resolved, nil
}
