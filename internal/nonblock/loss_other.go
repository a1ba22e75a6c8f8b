//go:build !linux || 386 || s390x

package nonblock

import "net"

// Retransmissions returns 0: it is not known.
func Retransmissions(net.Conn) int { return 0 }
