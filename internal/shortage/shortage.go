// Package shortage recognizes errors that say that this machine lacks descriptors or
// memory, or, at the start of a process, processes or threads. Such an error says nothing
// about a target.
package shortage

import (
	"errors"
	"syscall"
)

// Is reports whether an error is, or wraps, an error number of a shortage.
func Is(err error) bool {
	var number syscall.Errno
	return errors.As(err, &number) && IsErrno(number)
}

// IsErrno reports whether an error number says that this machine lacks descriptors or
// memory. ENOSPC is that of epoll_ctl and inotify for more than the user may have. EFAULT
// says that the memory of a buffer, which Go has reserved, is not available.
func IsErrno(number syscall.Errno) bool {
	switch number {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ENOSPC, syscall.EFAULT:
		return true
	}
	return false
}

// IsFork is Is for the start of a process, where EAGAIN says that there are too many
// processes or threads.
func IsFork(err error) bool { return Is(err) || errors.Is(err, syscall.EAGAIN) }
