package listener

import (
	"io/fs"
	"syscall"
)

// setMode returns a function that sets the mode of a Unix socket before the socket has a name. Without it, the umask would briefly
// decide who can connect.
func setMode(mode fs.FileMode) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		if controlErr := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), uint32(mode.Perm())) }); controlErr != nil {
			return controlErr
		}
		return err
	}
}
