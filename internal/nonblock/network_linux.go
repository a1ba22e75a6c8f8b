package nonblock

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/probe"
)

const streamSocket = syscall.SOCK_STREAM | syscall.SOCK_NONBLOCK | syscall.SOCK_CLOEXEC

// OpenIn opens a socket in a target's network, which must not be nil: in its namespace, with its mark, and bound to its interface,
// but not bound to its source address. The thread that enters the namespace opens nothing else meanwhile. An error is a
// *NetworkError, or that of the system call socket.
func OpenIn(n *probe.Network, domain, kind, protocol int) (fd int, err error) {
	if n.Namespace == "" {
		fd, err = syscall.Socket(domain, kind, protocol)
	} else {
		opened := make(chan struct{})
		go func() { // terminates its thread if the thread cannot return to the engine's namespace
			defer close(opened)
			fd, err = openWithin(n, domain, kind, protocol)
		}()
		<-opened
	}
	if err != nil {
		return -1, err
	}
	if err := setNetwork(fd, n); err != nil {
		_ = syscall.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Try returns the error of OpenIn, if it fails.
func Try(n probe.Network) error {
	fd, err := OpenIn(&n, syscall.AF_INET, streamSocket, syscall.IPPROTO_TCP)
	if err == nil {
		_ = syscall.Close(fd)
	}
	return err
}

// openWithin opens a socket in a namespace. It must run on its own goroutine.
func openWithin(n *probe.Network, domain, kind, protocol int) (fd int, err error) {
	runtime.LockOSThread()
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK // a path may be that of a pipe
	own, err := unix.Open("/proc/thread-self/ns/net", flags, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return -1, lacking("namespace", "the network namespace of the engine", err, "")
	}
	defer unix.Close(own)
	there, err := unix.Open(n.Path(), flags, 0)
	if err == nil {
		err = unix.Setns(there, unix.CLONE_NEWNET)
		_ = unix.Close(there)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return -1, lacking("namespace", "network namespace "+n.Namespace, err, "CAP_SYS_ADMIN to enter it")
	}
	fd, err = syscall.Socket(domain, kind, protocol)
	if unix.Setns(own, unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return fd, os.NewSyscallError("socket", err)
}

// setNetwork sets the mark and the interface of a socket.
func setNetwork(fd int, n *probe.Network) error {
	if n.Mark != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(int32(uint32(n.Mark)))); err != nil {
			return lacking("mark", fmt.Sprintf("mark %d", n.Mark), err, "CAP_NET_ADMIN to set it")
		}
	}
	if n.Interface != "" {
		if err := unix.BindToDevice(fd, n.Interface); err != nil {
			return lacking("interface", "interface "+n.Interface, err, "CAP_NET_RAW to bind to it")
		}
	}
	return nil
}

func lacking(field, what string, err error, cure string) error {
	number := syscall.Errno(0)
	errors.As(err, &number)
	return &NetworkError{field, what, number, cure}
}
