//go:build unix

package codecache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const (
	othersAny   = 0o077 // any permission of group and others
	groupWrite  = 0o020 // the group may replace what is in a directory, unless it is sticky
	othersWrite = 0o002 // likewise others
)

// checkPrivate returns an error when other users can read or write a directory, or could
// replace it by another one.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case info.Mode().Perm()&othersAny != 0:
		return fmt.Errorf("%s has mode %o and other users must have no access, run chmod 700", dir, info.Mode().Perm())
	case !belongs(info, os.Geteuid()):
		return fmt.Errorf("%s belongs to another user", dir)
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	return checkParents(path)
}

// checkParents checks the directories above one, up to the root.
func checkParents(dir string) error {
	for parent := filepath.Dir(dir); ; dir, parent = parent, filepath.Dir(parent) {
		info, err := os.Lstat(parent)
		switch {
		case err != nil:
			return err
		case !belongs(info, os.Geteuid()) && !belongs(info, 0):
			return fmt.Errorf("parent directory %s belongs to another user", parent)
		case info.Mode().Perm()&othersWrite != 0 && info.Mode()&os.ModeSticky == 0:
			return fmt.Errorf("parent directory %s has mode %o and other users must not write to it, run chmod o-w", parent, info.Mode().Perm())
		case info.Mode().Perm()&groupWrite != 0 && info.Mode()&os.ModeSticky == 0 && !hasOwnGroup(info):
			return fmt.Errorf("parent directory %s has mode %o and its group must not write to it, run chmod g-w", parent, info.Mode().Perm())
		case parent == filepath.Dir(parent):
			return nil
		}
	}
}

func belongs(info os.FileInfo, user int) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == user
}

// hasOwnGroup reports whether the group of a directory is that of this user alone: by
// convention, as in pam_umask, it has the user's number.
func hasOwnGroup(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Gid) == os.Getegid() && os.Getegid() == os.Geteuid()
}

// lockDir opens a directory and locks it until it is closed. The error is errInUse if another
// process has locked it; not all file systems have locks.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		err = errInUse
	}
	return f, err
}
