//go:build !linux

package dial

import (
	"syscall"

	"github.com/sonde-probe/sonde/probe"
)

const halfOpenWorks = false

// prepare returns a net.Dialer's Control, or nil.
func (c Config) prepare(*probe.Network) func(network, address string, s syscall.RawConn) error {
	return nil
}
