//go:build !386 && !s390x

package dial

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"
)

// These system calls are made on sockets that do not block, so that the scheduler
// need not know of them. What they return is an error number, or 0.

// openSocket makes a TCP socket for the family of an address.
func openSocket(at netip.AddrPort) (fd int, number syscall.Errno) {
	family := uintptr(syscall.AF_INET6)
	if at.Addr().Is4() {
		family = syscall.AF_INET
	}
	n, _, number := syscall.RawSyscall(syscall.SYS_SOCKET, family,
		syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, syscall.IPPROTO_TCP)
	return int(n), number
}

func closeSocket(fd int) {
	// There is nothing to be done about an error.
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(fd), 0, 0)
}

func setOption(fd, level, option int, value ...int32) syscall.Errno {
	_, _, number := syscall.RawSyscall6(syscall.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(unsafe.SliceData(value))), uintptr(4*len(value)), 0)
	return number
}

func bindSocket(fd int, at netip.AddrPort) syscall.Errno {
	a, n := sockaddr(at)
	_, _, number := syscall.RawSyscall(syscall.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&a)), n)
	return number
}

func connectSocket(fd int, at netip.AddrPort) syscall.Errno {
	a, n := sockaddr(at)
	_, _, number := syscall.RawSyscall(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&a)), n)
	return number
}

// disconnect dissolves a connection, by a reset if it stands, or what has come of
// it. The socket is as new then but for its options.
func disconnect(fd int) syscall.Errno {
	var nowhere rawAddress // its family is AF_UNSPEC
	_, _, number := syscall.RawSyscall(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&nowhere)), syscall.SizeofSockaddrInet4)
	return number
}

// sendTo sends what goes without waiting. Sending nothing tells whether the
// connection stands, without a byte on the wire.
func sendTo(fd int, b []byte) (int, syscall.Errno) {
	n, _, number := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), syscall.MSG_NOSIGNAL, 0, 0)
	if number != 0 {
		return 0, number
	}
	return int(n), 0
}

func receiveFrom(fd int, b []byte) (int, syscall.Errno) {
	n, _, number := syscall.RawSyscall(syscall.SYS_READ, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if number != 0 {
		return 0, number
	}
	return int(n), 0
}

// localAddress returns the address of this side, which is not valid where the
// system does not say.
func localAddress(fd int) netip.AddrPort {
	var a rawAddress
	n := uint32(len(a))
	_, _, number := syscall.RawSyscall(syscall.SYS_GETSOCKNAME, uintptr(fd),
		uintptr(unsafe.Pointer(&a)), uintptr(unsafe.Pointer(&n)))
	if number != 0 {
		return netip.AddrPort{}
	}
	port := binary.BigEndian.Uint16(a[2:])
	if binary.NativeEndian.Uint16(a[:]) == syscall.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:8])), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(a[8:24])), port)
}

// rawAddress has room for a sockaddr_in or a sockaddr_in6.
type rawAddress [syscall.SizeofSockaddrInet6]byte

// sockaddr returns an address as the system takes it, and its length.
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
