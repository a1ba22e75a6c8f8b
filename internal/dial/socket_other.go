//go:build !linux

package dial

import "syscall"

const halfOpenWorks = false

// prepare returns a net.Dialer's Control, or nil.
func (c Config) prepare() func(network, address string, s syscall.RawConn) error { return nil }
