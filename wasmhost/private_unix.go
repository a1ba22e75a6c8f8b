//go:build unix

package wasmhost

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// The mode bits of a directory that others may change.
const (
	othersAny   = 0o077 // any right of group and others
	othersWrite = 0o002 // others may rename what is in it, unless it is sticky
)

// checkPrivate refuses a directory that is not this user's alone, or that somebody else
// could put another one in the place of.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case info.Mode().Perm()&othersAny != 0:
		return fmt.Errorf("%s has the mode %o, others must have no rights: chmod 700", dir, info.Mode().Perm())
	case !belongs(info, os.Geteuid()):
		return fmt.Errorf("%s belongs to another user", dir)
	}
	whole, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if whole, err = filepath.EvalSymlinks(whole); err != nil {
		return err
	}
	return checkParents(whole)
}

// checkParents checks the directories above one, up to the root.
func checkParents(dir string) error {
	for parent := filepath.Dir(dir); ; dir, parent = parent, filepath.Dir(parent) {
		info, err := os.Lstat(parent)
		switch {
		case err != nil:
			return err
		case !belongs(info, os.Geteuid()) && !belongs(info, 0):
			return fmt.Errorf("%s above it belongs to another user", parent)
		case info.Mode().Perm()&othersWrite != 0 && info.Mode()&os.ModeSticky == 0:
			return fmt.Errorf("%s above it has the mode %o, others must not write there", parent, info.Mode().Perm())
		case parent == filepath.Dir(parent):
			return nil
		}
	}
}

func belongs(info os.FileInfo, user int) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == user
}
