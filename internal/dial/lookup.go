package dial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/internal/shortage"
)

// localError is the error of a lookup that failed because this machine lacks descriptors,
// ports or memory, or because package net does not know what is in resolv.conf.
type localError struct{ error }

func (e localError) Unwrap() error { return e.error }

// errUnlisted is the cause of a localError: package net has asked a name server that is
// not in resolv.conf.
var errUnlisted = errors.New("not in " + resolvConf + ", which has changed in the last seconds, or could not be read")

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

// The files that package net reads, and how much of them is read here, in bytes.
const (
	hostsFile  = "/etc/hosts"
	resolvConf = "/etc/resolv.conf"
	maxConf    = 64 << 10
)

// defaultServers are those of package net when it cannot read resolv.conf (defaultNS).
var defaultServers = []string{"127.0.0.1:53", "[::1]:53"}

// checkServer returns an error if package net wants to ask a name server of its own that
// is not in resolv.conf, because it could not read the file, or has not read it since it
// was changed. It reads the file again after five seconds. An error is this machine's fault.
func checkServer(server string) error {
	if !slices.Contains(defaultServers, server) {
		return nil
	}
	text, err := files.Read(resolvConf, maxConf)
	if err != nil {
		return ifShortage(err)
	}
	host, _, _ := net.SplitHostPort(server)
	listed := false
	for fields := range lines(text) {
		if fields[0] == "nameserver" && len(fields) > 1 {
			listed = true
			if fields[1] == host {
				return nil
			}
		}
	}
	if !listed {
		return nil
	}
	return fmt.Errorf("name server %s: %w", server, errUnlisted)
}

// ifShortage returns err if this machine is at fault. A file that does not exist, or must
// not be read, counts as empty.
func ifShortage(err error) error {
	if shortage.Is(err) {
		return err
	}
	return nil
}

// lines yields the fields of each line that has some.
func lines(text []byte) func(yield func(fields []string) bool) {
	return func(yield func(fields []string) bool) {
		for line := range bytes.Lines(text) {
			line, _, _ = bytes.Cut(line, []byte("#"))
			if fields := strings.Fields(string(line)); len(fields) > 0 && !yield(fields) {
				return
			}
		}
	}
}

// hostsLoaded is set when package net has read the hosts file. It keeps what it has read
// while it cannot read a newer file.
var hostsLoaded atomic.Bool

// loadHosts has package net read the hosts file. An error is a shortage.
func loadHosts() error {
	if hostsLoaded.Load() {
		return nil
	}
	name, err := firstHost()
	if err != nil {
		return err
	}
	if name != "" {
		refuse := func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
		resolver := net.Resolver{PreferGo: true, Dial: refuse}
		_, err = resolver.LookupNetIP(context.Background(), "ip", name)
	}
	if err != nil { // nsswitch.conf may forbid the file, or it could not be read just now
		if _, err := firstHost(); err != nil {
			return err
		}
	}
	hostsLoaded.Store(true)
	return nil
}

// firstHost returns the first name in the hosts file, or "" if there is none. An error is
// a shortage.
func firstHost() (string, error) {
	text, err := files.Read(hostsFile, maxConf)
	if errors.Is(err, files.ErrTooLarge) {
		return "localhost", nil
	}
	if err != nil {
		return "", ifShortage(err)
	}
	for fields := range lines(text) {
		if _, err := netip.ParseAddr(fields[0]); err == nil && len(fields) > 1 {
			return fields[1], nil
		}
	}
	return "", nil
}
