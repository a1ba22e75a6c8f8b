//go:build !linux

package listener

import (
	"io/fs"
	"syscall"
)

// setMode returns nil: only Linux lets a socket without a name have a mode.
func setMode(fs.FileMode) func(network, address string, c syscall.RawConn) error { return nil }
