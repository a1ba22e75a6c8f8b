//go:build !linux

package nonblock

import (
	"syscall"

	"github.com/sonde-probe/sonde/probe"
)

// Try returns nil: Network.Check has already returned an error.
func Try(probe.Network) error { return nil }

// OpenIn returns an error: Network.Check has already returned one.
func OpenIn(n *probe.Network, _, _, _ int) (int, error) {
	return -1, &NetworkError{Field: "namespace", What: "network namespace " + n.Namespace, Errno: syscall.ENOTSUP}
}
