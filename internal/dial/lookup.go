package dial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/internal/shortage"
)

// localError is the error of a lookup that failed because this machine lacks descriptors,
// ports or memory.
type localError struct{ error }

func (e localError) Unwrap() error { return e.error }

// silenceError is the error of a lookup during which no name server answered anybody: it
// says nothing about the name.
type silenceError struct{ error }

func (e silenceError) Unwrap() error { return e.error }

// lookupIP looks a name up by package net.
//
// Package net keeps only the text of an error of a socket, and takes a file that it cannot
// open for an empty one: without descriptors it asks 127.0.0.1 for a name in /etc/hosts,
// and "no such host" is the result.
func lookupIP(ctx context.Context, host string) ([]netip.Addr, error) {
	if err := loadHosts(); err != nil {
		return nil, localError{err}
	}
	l := &lookup{began: now()}
	resolver := net.Resolver{PreferGo: true, Dial: l.dial}
	ips, err := resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, l.explain(err)
	}
	return ips, nil
}

// lookup is one lookup of a name, which may take several queries at once.
type lookup struct {
	began time.Duration
	asked atomic.Bool // a name server

	mu    sync.Mutex
	cause error // the first shortage of this machine; guarded by mu
}

// lastAnswer is when a name server last answered a query of this process, as now returns
// it.
var lastAnswer atomic.Int64

// epoch is where the time of now is 0.
var epoch = time.Now()

func now() time.Duration { return time.Since(epoch) }

// explain returns the error of the lookup with what package net has hidden.
func (l *lookup) explain(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return localError{fmt.Errorf("%w: %w", err, l.cause)}
	}
	// An answer to this lookup, or to another one, in its second half proves that the name
	// servers can be reached.
	if halfway := (l.began + now()) / 2; l.asked.Load() && time.Duration(lastAnswer.Load()) < halfway {
		return silenceError{err}
	}
	return err
}

// record keeps an error of a socket if this machine is at fault.
func (l *lookup) record(network string, err error) {
	var number syscall.Errno
	if !errors.As(err, &number) {
		return
	}
	noPort := number == syscall.EAGAIN || network == "tcp" && number == syscall.EADDRNOTAVAIL
	if !noPort && !shortage.IsErrno(number) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = err
	}
}

// dial connects to a name server.
func (l *lookup) dial(ctx context.Context, network, server string) (net.Conn, error) {
	l.asked.Store(true)
	if err := checkServer(server); err != nil {
		l.record(network, err)
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, server)
	if err != nil {
		l.record(network, err)
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

// Read records that there is an answer.
func (c queryConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		lastAnswer.Store(int64(now()))
	}
	c.lookup.record(c.network, err)
	return n, err
}

// Write records a lack of buffers.
func (c queryConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.lookup.record(c.network, err)
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

// checkServer returns an error if package net wants to ask a name server only because it
// could not read resolv.conf. It tries to read the file again after five seconds.
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
	return &os.PathError{Op: "open", Path: resolvConf, Err: syscall.EMFILE} // what package net got
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
