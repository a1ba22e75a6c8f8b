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

// FullListener listens at an IPv4 address of this machine, with a full backlog: the system completes no more handshakes there.
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
	for range 10 { // without waiting, so that it is full however late the system responds
		client, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Close(client) })
		peer := &syscall.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
		if err := syscall.SetNonblock(client, true); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Connect(client, peer); err != nil && err != syscall.EINPROGRESS {
			t.Fatal(err)
		}
	}
	if conn, err := net.DialTimeout("tcp", to.String(), 50*time.Millisecond); err == nil {
		conn.Close()
		t.Skip("this system's backlog has no end")
	}
	return to
}
