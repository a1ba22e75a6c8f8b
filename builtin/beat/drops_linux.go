//go:build linux && !386 && !s390x

package beatprobe

import (
	"syscall"
	"unsafe"
)

// From linux/socket.h and linux/sock_diag.h.
const (
	soMeminfo    = 55
	meminfoDrops = 8 // index into the values of SO_MEMINFO
)

// countsDrops is true if the system reports how many datagrams it has dropped.
const countsDrops = true

// drops returns how many datagrams the system has dropped at a socket; ok is false if the system does not report it.
func drops(fd uintptr) (n uint64, ok bool) {
	var info [meminfoDrops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.SOL_SOCKET, soMeminfo, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	return uint64(info[meminfoDrops]), errno == 0 && size >= uint32(unsafe.Sizeof(info))
}
