//go:build !linux

package listener

import (
	"io/fs"
	"syscall"
)

// setMode returns nil: only Linux can set the mode of a socket before it has a name.
func setMode(fs.FileMode) func(network, address string, c syscall.RawConn) error { return nil }
