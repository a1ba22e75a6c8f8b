//go:build !linux

package dial

import "syscall"

const halfOpenWorks = false

// prepare returns what is done to a socket before it connects, or nil.
func (c Config) prepare() func(network, address string, s syscall.RawConn) error { return nil }
