//go:build unix

package nonblocktest

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// FullListener listens at an IPv4 address of this machine, with a backlog that is
// full: the system answers no more handshakes there.
func FullListener(t testing.TB, address string) netip.AddrPort {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	at := &syscall.SockaddrInet4{Addr: netip.MustParseAddr(address).As4()}
	if err := errors.Join(syscall.Bind(fd, at), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(netip.MustParseAddr(address), uint16(name.(*syscall.SockaddrInet4).Port))
	for range 10 {
		conn, err := net.DialTimeout("tcp", to.String(), 50*time.Millisecond)
		if err != nil {
			return to
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Skip("this system's backlog has no end")
	return to
}
