package command

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseInherited closes descriptors, such as a lock, that the engine's parent has left open by mistake. It is for a process that
// the engine has started from its own file; descriptors up to last were passed by the engine and stay open. Descriptors that Go
// opens are close-on-exec, and stay open as well.
func CloseInherited(last int) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= last {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}
