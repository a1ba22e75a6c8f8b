package nonblock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Set is a set of descriptors to wait for: an epoll set. The methods addEnd and Wake are safe for concurrent use by multiple
// goroutines until Close; the others must be called from a single goroutine.
type Set struct {
	epoll  int
	event  int // an eventfd that Wake writes to
	ready  [128]syscall.EpollEvent
	coarse bool // the kernel has no epoll_pwait2
}

// BindAddressNoPort defers the choice of a port from bind to connect, so that connections to several addresses can share one port.
const BindAddressNoPort = unix.IP_BIND_ADDRESS_NO_PORT

// wakeKey is the key of the eventfd.
const wakeKey = 1<<32 - 1

// anyChange are the events of Add. They are edge-triggered, so a descriptor is added only once.
const anyChange = syscall.EPOLLIN | syscall.EPOLLOUT | syscall.EPOLLRDHUP | edge

// endOnly are the events of addEnd. EPOLLERR and EPOLLHUP are always reported.
const endOnly = syscall.EPOLLRDHUP | edge

const edge = 1 << 31 // syscall.EPOLLET, which is negative

// sysEpollPwait2 is the number of epoll_pwait2 on all of Go's architectures. Linux has it since 5.11.
const sysEpollPwait2 = 441

// NewSet returns an empty Set. The caller must close it.
func NewSet() (*Set, error) {
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	event, _, errno := syscall.Syscall(syscall.SYS_EVENTFD2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if errno != 0 {
		return nil, errors.Join(fmt.Errorf("eventfd2: %w", errno), syscall.Close(epoll))
	}
	s := &Set{epoll: epoll, event: int(event)}
	if err := s.add(s.event, wakeKey, syscall.EPOLLIN|edge); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Add waits for changes of a descriptor, under a key below 1<<32 - 1. Closing the descriptor removes it. A descriptor that is
// already in the set gets the new key, and its current state is reported again.
func (s *Set) Add(fd int, key uint32) error { return s.add(fd, key, anyChange) }

// addEnd waits for the end of a connection, under a key below 1<<32 - 1: its peer closes or resets it, or it fails. Arriving data
// is not reported. Closing the descriptor removes it.
func (s *Set) addEnd(fd int, key uint32) error { return s.add(fd, key, endOnly) }

func (s *Set) add(fd int, key, events uint32) error {
	errno := s.control(syscall.EPOLL_CTL_ADD, fd, key, events)
	if errno == syscall.EEXIST {
		errno = s.control(syscall.EPOLL_CTL_MOD, fd, key, events)
	}
	if errno != 0 {
		return fmt.Errorf("epoll_ctl: %w", errno)
	}
	return nil
}

func (s *Set) control(op, fd int, key, events uint32) syscall.Errno {
	e := syscall.EpollEvent{Events: events, Fd: int32(key)}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_CTL,
		uintptr(s.epoll), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(&e)), 0, 0)
	return errno
}

// CloseDescriptor closes a descriptor.
func CloseDescriptor(fd int) error { return syscall.Close(fd) }

// maxRounds is the maximum number of times that one Wait polls for more events.
const maxRounds = 256

// Wait calls ready with the key of each descriptor that has changed, for at most 32,768 of them. It returns when a descriptor has
// changed, when Wake was called, or when the timeout has expired, and may return earlier. A negative timeout never expires.
func (s *Set) Wait(timeout time.Duration, ready func(key uint32)) error {
	for range maxRounds {
		n, err := s.wait(timeout)
		for _, e := range s.ready[:n] {
			if key := uint32(e.Fd); key == wakeKey {
				var count [8]byte
				_, _ = syscall.Read(s.event, count[:])
			} else {
				ready(key)
			}
		}
		if n < len(s.ready) || err != nil {
			return err
		}
		timeout = 0
	}
	return nil
}

func (s *Set) wait(timeout time.Duration) (int, error) {
	if !s.coarse {
		// On the same machine or in its network, most responses arrive immediately, and a call that cannot block costs the
		// scheduler nothing.
		n, errno := s.pwait2(0)
		if n == 0 && errno == 0 && timeout != 0 {
			n, errno = s.pwait2(timeout)
		}
		if errno != syscall.ENOSYS && errno != syscall.EPERM { // EPERM: a sandbox does not know the call
			return n, waitError(errno)
		}
		s.coarse = true
	}
	ms := -1
	if timeout >= 0 {
		ms = int((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	n, err := syscall.EpollWait(s.epoll, s.ready[:], ms)
	if err == nil {
		return n, nil
	}
	errno, _ := err.(syscall.Errno)
	return 0, waitError(errno)
}

// waitError returns the error of a wait. An interruption by a signal is not an error.
func waitError(errno syscall.Errno) error {
	if errno == 0 || errno == syscall.EINTR {
		return nil
	}
	return fmt.Errorf("epoll_wait: %w", errno)
}

// pwait2 waits with a timeout in nanoseconds. With a timeout of 0, it need not notify the scheduler.
func (s *Set) pwait2(timeout time.Duration) (int, syscall.Errno) {
	call := syscall.Syscall6
	var limit *syscall.Timespec
	if timeout >= 0 {
		t := syscall.NsecToTimespec(int64(timeout))
		limit = &t
	}
	if timeout == 0 {
		call = syscall.RawSyscall6
	}
	n, _, errno := call(sysEpollPwait2, uintptr(s.epoll), uintptr(unsafe.Pointer(&s.ready[0])), uintptr(len(s.ready)),
		uintptr(unsafe.Pointer(limit)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// Wake ends the current Wait, or the next one if none is running.
func (s *Set) Wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = syscall.Write(s.event, one[:]) // fails only if the set was woken 1<<64 times
}

// Close closes the set, but not the descriptors in it.
func (s *Set) Close() error { return errors.Join(syscall.Close(s.event), syscall.Close(s.epoll)) }

func unread(fd int) int {
	n, _ := unix.IoctlGetInt(fd, unix.TIOCINQ) // 0 after an error
	return n
}

// hasEnded reports whether the peer has closed or reset a connection, or the connection has failed: the events that addEnd waits
// for.
func hasEnded(fd int) bool {
	polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(polled, 0)
	return n > 0 && err == nil && polled[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}
