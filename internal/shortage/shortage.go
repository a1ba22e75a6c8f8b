// Package shortage recognizes errors caused by a lack of descriptors or memory on this machine or, at the start of a
// process, of processes or threads. Such an error is not the fault of a target.
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

// IsErrno reports whether an error number means that this machine lacks descriptors or memory. ENOSPC is returned by
// epoll_ctl and inotify beyond the limit of the user. EFAULT means that the memory of a buffer, which Go has reserved,
// is not available.
func IsErrno(number syscall.Errno) bool {
	switch number {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ENOSPC, syscall.EFAULT:
		return true
	}
	return false
}

// IsFork is Is for the start of a process, where EAGAIN means too many processes or threads.
func IsFork(err error) bool { return Is(err) || errors.Is(err, syscall.EAGAIN) }
