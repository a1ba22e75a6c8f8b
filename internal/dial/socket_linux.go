package dial

import (
	"syscall"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

const halfOpenWorks = true

// prepare returns a net.Dialer's Control, which sets a socket's options, or nil if there are none to set. The network may be nil.
func (c Config) prepare(n *probe.Network) func(network, address string, s syscall.RawConn) error {
	if !c.HalfOpen && c.SourceAddress == "" && n == nil {
		return nil
	}
	return func(_, _ string, s syscall.RawConn) error {
		var failed error
		err := s.Control(func(fd uintptr) {
			if n != nil {
				failed = move(int(fd), n)
			}
			if failed == nil {
				failed = c.setOptions(int(fd))
			}
		})
		if err != nil {
			return err
		}
		return failed
	}
}

// move replaces a new socket, under its number, by a socket of the same kind in a target's network. That is safe, since package net
// does not wait for the socket before it connects. An error is an *Error.
func move(fd int, n *probe.Network) error {
	var kind [3]int
	for i, option := range [...]int{syscall.SO_DOMAIN, syscall.SO_TYPE, syscall.SO_PROTOCOL} {
		var err error
		if kind[i], err = syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, option); err != nil {
			return NetworkError(err)
		}
	}
	there, err := nonblock.OpenIn(n, kind[0], kind[1]|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, kind[2])
	if err != nil {
		return NetworkError(err)
	}
	defer syscall.Close(there)
	if err := syscall.Dup3(there, fd, syscall.O_CLOEXEC); err != nil {
		return NetworkError(err)
	}
	return nil
}

func (c Config) setOptions(fd int) error {
	if c.SourceAddress != "" {
		// Linux has the option since 4.2, and works without it.
		_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, nonblock.BindAddressNoPort, 1)
	}
	if !c.HalfOpen {
		return nil
	}
	// Without quick acknowledgements, the kernel delays the last ACK of the handshake by up to 200 ms, to send it with the first
	// data.
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 0); err != nil {
		return err
	}
	// With a linger time of 0, close sends a reset instead.
	return syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
}
