package dial

import (
	"syscall"

	"github.com/sonde-probe/sonde/internal/nonblock"
)

const halfOpenWorks = true

// prepare returns a net.Dialer's Control, which sets a socket's options, or nil.
func (c Config) prepare() func(network, address string, s syscall.RawConn) error {
	if !c.HalfOpen && c.SourceAddress == "" {
		return nil
	}
	return func(_, _ string, s syscall.RawConn) error {
		var failed error
		err := s.Control(func(fd uintptr) { failed = c.setOptions(int(fd)) })
		if err != nil {
			return err
		}
		return failed
	}
}

func (c Config) setOptions(fd int) error {
	if c.SourceAddress != "" {
		// Linux knows the option since 4.2, and works without it.
		_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, nonblock.BindAddressNoPort, 1)
	}
	if !c.HalfOpen {
		return nil
	}
	// Without quick acknowledgements the kernel delays the last ACK of the handshake for
	// up to 200 ms, to send it with the first data.
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 0); err != nil {
		return err
	}
	// With a linger time of 0 close sends a reset instead.
	return syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
}
