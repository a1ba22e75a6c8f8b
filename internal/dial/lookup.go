package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/sonde-probe/sonde/internal/shortage"
)

// localError is the error of a lookup that failed because this machine lacks descriptors,
// ports or memory, or because package net does not know what is in resolv.conf.
type localError struct{ error }

func (e localError) Unwrap() error { return e.error }

// lookupIP looks a name up by package net, and reports whether a name server was asked.
//
// Package net keeps only the text of an error of a socket, and takes a file that it cannot
// open for an empty one: without descriptors it asks 127.0.0.1 for a name in /etc/hosts,
// and "no such host" is the result.
func lookupIP(ctx context.Context, host string) (ips []netip.Addr, asked bool, err error) {
	if err := loadHosts(); err != nil {
		return nil, false, localError{err}
	}
	l := &lookup{}
	resolver := net.Resolver{PreferGo: true, Dial: l.dial}
	ips, err = resolver.LookupNetIP(ctx, "ip", host)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.cause != nil {
		err = localError{fmt.Errorf("%w: %w", err, l.cause)}
	}
	return ips, l.asked, err
}

// lookup is one lookup of a name, which may take several queries at once.
type lookup struct {
	mu    sync.Mutex // guards the fields below
	asked bool       // a name server
	cause error      // the first fault of this machine
}

// noteShortage keeps an error of a socket if this machine is at fault.
func (l *lookup) noteShortage(network string, err error) {
	var number syscall.Errno
	if !errors.As(err, &number) {
		return
	}
	noPort := number == syscall.EAGAIN || network == "tcp" && number == syscall.EADDRNOTAVAIL
	if noPort || shortage.IsErrno(number) {
		l.note(err)
	}
}

// note keeps the first fault of this machine.
func (l *lookup) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = err
	}
}

// dial connects to a name server.
func (l *lookup) dial(ctx context.Context, network, server string) (net.Conn, error) {
	if err := checkServer(server); err != nil {
		l.note(err)
		return nil, err
	}
	l.mu.Lock()
	l.asked = true
	l.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, network, server)
	if err != nil {
		l.noteShortage(network, err)
		return nil, err
	}
	query := queryConn{Conn: conn, lookup: l, network: network}
	if packets, ok := conn.(net.PacketConn); ok {
		return queryPacketConn{query, packets}, nil // package net asks for the interface
	}
	return query, nil
}

// queryConn is a connection to a name server.
type queryConn struct {
	net.Conn
	lookup  *lookup
	network string
}

type queryPacketConn struct {
	queryConn
	net.PacketConn
}

// Read notes a lack of memory.
func (c queryConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.lookup.noteShortage(c.network, err)
	return n, err
}

// Write notes a lack of buffers.
func (c queryConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.lookup.noteShortage(c.network, err)
	return n, err
}
