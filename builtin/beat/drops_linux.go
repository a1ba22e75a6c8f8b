//go:build linux && !386 && !s390x

package beatprobe

import (
	"syscall"
	"unsafe"
)

// From linux/socket.h and linux/sock_diag.h.
const (
	soMeminfo    = 55
	meminfoDrops = 8 // index in what SO_MEMINFO returns
)

// countsDrops is whether the system says how many datagrams it has dropped.
const countsDrops = true

// drops returns how many datagrams the system has dropped that came to a socket, and false if it
// does not say so.
func drops(fd uintptr) (n uint64, ok bool) {
	var info [meminfoDrops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.SOL_SOCKET, soMeminfo, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	return uint64(info[meminfoDrops]), errno == 0 && size >= uint32(unsafe.Sizeof(info))
}
