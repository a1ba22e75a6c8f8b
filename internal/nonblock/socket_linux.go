//go:build !386 && !s390x

package nonblock

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"
)

// The system calls in this file are on non-blocking sockets, so they need not notify the scheduler. They return an error number, or
// 0.

// openSocket opens a TCP socket for the family of an address.
func openSocket(at netip.AddrPort) (fd int, errno syscall.Errno) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_SOCKET, uintptr(domainOf(at)), streamSocket, syscall.IPPROTO_TCP)
	return int(n), errno
}

// domainOf returns the domain of sockets for an address.
func domainOf(at netip.AddrPort) int {
	if at.Addr().Is4() {
		return syscall.AF_INET
	}
	return syscall.AF_INET6
}

func closeSocket(fd int) {
	// The descriptor is closed even if there is an error.
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(fd), 0, 0)
}

func setOption(fd, level, option int, value ...int32) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(unsafe.SliceData(value))), uintptr(4*len(value)), 0)
	return errno
}

func bindSocket(fd int, at netip.AddrPort) syscall.Errno {
	a, n := sockaddr(at)
	_, _, errno := syscall.RawSyscall(syscall.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&a)), n)
	return errno
}

func connectSocket(fd int, at netip.AddrPort) syscall.Errno {
	a, n := sockaddr(at)
	_, _, errno := syscall.RawSyscall(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&a)), n)
	return errno
}

// disconnect resets a connection, or cancels a connection attempt. The socket is then like new, except for its options.
func disconnect(fd int) syscall.Errno {
	var nowhere rawAddress // its family is AF_UNSPEC
	_, _, errno := syscall.RawSyscall(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&nowhere)), syscall.SizeofSockaddrInet4)
	return errno
}

// sendTo sends as much as it can without waiting. Sending an empty slice succeeds if the connection is open, without sending a
// packet.
func sendTo(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), syscall.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

func receiveFrom(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// localAddress returns the local address of a socket; it is not valid after an error.
func localAddress(fd int) netip.AddrPort {
	var a rawAddress
	n := uint32(len(a))
	_, _, errno := syscall.RawSyscall(syscall.SYS_GETSOCKNAME, uintptr(fd),
		uintptr(unsafe.Pointer(&a)), uintptr(unsafe.Pointer(&n)))
	if errno != 0 {
		return netip.AddrPort{}
	}
	port := binary.BigEndian.Uint16(a[2:])
	if binary.NativeEndian.Uint16(a[:]) == syscall.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:8])), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(a[8:24])), port)
}

// rawAddress can hold a sockaddr_in or a sockaddr_in6.
type rawAddress [syscall.SizeofSockaddrInet6]byte

// sockaddr returns an address in the form that system calls accept, and its length.
func sockaddr(at netip.AddrPort) (a rawAddress, n uintptr) {
	binary.BigEndian.PutUint16(a[2:], at.Port())
	if at.Addr().Is4() {
		binary.NativeEndian.PutUint16(a[:], syscall.AF_INET)
		ip := at.Addr().As4()
		copy(a[4:], ip[:])
		return a, syscall.SizeofSockaddrInet4
	}
	binary.NativeEndian.PutUint16(a[:], syscall.AF_INET6)
	ip := at.Addr().As16()
	copy(a[8:], ip[:])
	return a, syscall.SizeofSockaddrInet6
}
