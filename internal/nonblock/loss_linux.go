//go:build !386 && !s390x

package nonblock

import (
	"encoding/binary"
	"net"
	"syscall"
	"unsafe"
)

// Layout of struct tcp_info (linux/tcp.h). Its 4 bytes at totalRetransmissions are the number of segments that Linux has
// retransmitted on a connection, including those of the handshake.
const (
	totalRetransmissions = 100
	sizeOfInfo           = 104
)

// Retransmissions returns how many segments this machine has retransmitted on a TCP connection, with or without TLS; 0 if unknown.
func Retransmissions(conn net.Conn) (n int) {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return Retransmissions(secure.NetConn())
	}
	of, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return 0
	}
	if err := raw.Control(func(fd uintptr) { n = retransmissions(int(fd)) }); err != nil {
		return 0
	}
	return n
}

func retransmissions(fd int) int {
	var info [sizeOfInfo]byte
	size := uint32(len(info))
	_, _, errno := syscall.RawSyscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 || size < sizeOfInfo {
		return 0
	}
	return int(binary.NativeEndian.Uint32(info[totalRetransmissions:]))
}
