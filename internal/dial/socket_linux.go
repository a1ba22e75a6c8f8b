package dial

import "syscall"

const halfOpenWorks = true

// bindAddressNoPort is IP_BIND_ADDRESS_NO_PORT of linux/in.h: a source address
// alone does not take a port until connect, so that one port serves
// connections to several places.
const bindAddressNoPort = 24

// prepare returns what is done to a socket before it connects, or nil.
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
		// An old kernel does not know it, and does without.
		_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, bindAddressNoPort, 1)
	}
	if !c.HalfOpen {
		return nil
	}
	// Without quick acknowledgements the kernel holds the last ACK of the
	// handshake back for up to 200 ms, to send it with the first data.
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 0); err != nil {
		return err
	}
	// With a linger time of 0 close sends a reset instead.
	return syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
}
