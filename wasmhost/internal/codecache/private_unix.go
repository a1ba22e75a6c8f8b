//go:build unix

package codecache

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// othersAny is any permission of group and others.
const othersAny = 0o077

// checkPrivate returns an error when other users can read or write a directory.
func checkPrivate(dir os.FileInfo) error {
	stat, ok := dir.Sys().(*syscall.Stat_t)
	switch {
	case !ok || int(stat.Uid) != os.Geteuid():
		return errors.New("it belongs to another user")
	case dir.Mode().Perm()&othersAny != 0:
		return fmt.Errorf("it has mode %o and other users must have no access, run chmod 700", dir.Mode().Perm())
	}
	return nil
}
