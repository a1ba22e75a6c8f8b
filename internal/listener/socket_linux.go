package listener

import (
	"io/fs"
	"syscall"
)

// setMode returns what sets the mode of a Unix socket before it has a name. Without it there
// would be a moment in which the umask decides who can connect.
func setMode(mode fs.FileMode) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		if controlErr := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), uint32(mode.Perm())) }); controlErr != nil {
			return controlErr
		}
		return err
	}
}
