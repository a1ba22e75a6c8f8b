//go:build !linux

package nonblock

import (
	"syscall"

	"github.com/sonde-probe/sonde/probe"
)

// Try returns nil: a Network.Check fails before.
func Try(probe.Network) error { return nil }

// OpenIn makes no socket: a Network.Check fails before.
func OpenIn(n *probe.Network, _, _, _ int) (int, error) {
	return -1, &NetworkError{Field: "namespace", What: "network namespace " + n.Namespace, Errno: syscall.ENOTSUP}
}
