//go:build unix

package wasmhost

import (
	"fmt"
	"os"
	"syscall"
)

// checkPrivate refuses a directory that is not this user's alone.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s has the mode %o, others must have no rights: chmod 700", dir, info.Mode().Perm())
	case !ok || int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", dir)
	}
	return nil
}
