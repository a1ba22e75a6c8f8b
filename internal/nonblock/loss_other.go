//go:build !linux || 386 || s390x

package nonblock

import "net"

// Retransmissions returns 0: the number is not available on this system.
func Retransmissions(net.Conn) int { return 0 }
