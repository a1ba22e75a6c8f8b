package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/internal/shortage"
)

// localError is the error of a lookup that failed because this machine lacked descriptors, ports or memory, or because package net
// has not read the current resolv.conf.
type localError struct{ error }

func (e localError) Unwrap() error { return e.error }

// lookupIP looks a name up by package net, and reports whether a name server was queried.
//
// Package net keeps only the text of a socket error, and treats a file that it cannot open as empty: without descriptors, it asks
// 127.0.0.1 for a name in /etc/hosts, and returns "no such host". It also returns "no such host" if only another query was
// answered: for the name with a suffix of the search list, or for addresses of another family.
func lookupIP(ctx context.Context, host string) (ips []netip.Addr, asked bool, err error) {
	if err := loadHosts(); err != nil {
		return nil, false, localError{err}
	}
	l := newLookup(ctx)
	resolver := net.Resolver{PreferGo: true, Dial: l.dial}
	ips, err = resolver.LookupNetIP(ctx, "ip", host)
	l.mu.Lock()
	defer l.mu.Unlock()
	return ips, l.asked, l.explain(host, err)
}

// lookup is one lookup of a name, which may send several queries at the same time.
type lookup struct {
	servers  func() int // returns the number of name servers
	deadline time.Time  // needed because package net does not pass it to Dial; zero for none

	mu       sync.Mutex      // guards the fields below
	asked    bool            // a name server was queried
	answered bool            // a name server has responded
	open     map[string]bool // the questions that no name server has answered
	unsent   map[string]bool // the name servers to which, at least once, no query could be sent
	late     bool            // a query could not be sent because no time was left
	cause    error           // the first fault of this machine
}

func newLookup(ctx context.Context) *lookup {
	deadline, _ := ctx.Deadline()
	return &lookup{servers: sync.OnceValue(countServers), deadline: deadline, open: map[string]bool{}, unsent: map[string]bool{}}
}

// explain returns the error of a lookup of a host, with the state of its queries taken into account. The caller must hold mu.
func (l *lookup) explain(host string, err error) error {
	if missing := (*net.DNSError)(nil); errors.As(err, &missing) && missing.IsNotFound && l.isIncomplete() {
		err = &net.DNSError{Err: "a query for it got no response, or only an error", Name: host, IsTimeout: true, IsTemporary: true}
	}
	switch {
	case err == nil:
		return nil
	case l.cause != nil:
		return localError{fmt.Errorf("%w: %w", err, l.cause)}
	case l.asked && !l.answered && l.servers() > 1:
		return localError{fmt.Errorf("%w: %w", err, errSilent)}
	}
	return err
}

// isIncomplete reports whether a query may be unanswered. If a query cannot be sent, package net tries the next name server: the
// query is lost only if it could be sent to none of them, or no time was left. The caller must hold mu.
func (l *lookup) isIncomplete() bool {
	return len(l.open) > 0 || l.late || len(l.unsent) > 0 && len(l.unsent) >= l.servers()
}

// noteShortage records a socket error if this machine is at fault.
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

// note records the first fault of this machine.
func (l *lookup) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = err
	}
}

// ask records that a query is being sent, whose question is not answered yet.
func (l *lookup) ask(question string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[question] = true
}

// answer records the response of a name server. Whether the question counts as answered depends on the response code: another
// server may know more.
func (l *lookup) answer(question string, code int) {
	const success, noSuchName = 0, 3 // RFC 1035, section 4.1.1
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered = true
	if code == success || code == noSuchName {
		delete(l.open, question)
	}
}

// tries is how many times each name server is queried, as in package net.
const tries = 2

// share returns when a query must end, so that enough time is left for the other name servers, and after what time without a
// response it is sent again. A single name server may respond late: it is queried again without giving up the first query. Both
// values are zero if the lookup has no deadline; again is zero if there are several name servers.
func (l *lookup) share() (again time.Duration, end time.Time) {
	if l.deadline.IsZero() {
		return 0, time.Time{}
	}
	now := time.Now()
	left := l.deadline.Sub(now)
	if servers := l.servers(); servers > 1 {
		return 0, now.Add(left / time.Duration(servers*tries))
	}
	return left / 4, now.Add(left * 3 / 4)
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
	again, end := l.share()
	dialer := net.Dialer{Deadline: end}
	conn, err := dialer.DialContext(ctx, network, server)
	if err != nil {
		l.noteShortage(network, err)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unsent[server] = true
		l.late = l.late || !l.deadline.IsZero() && !time.Now().Before(l.deadline)
		return nil, err
	}
	query := &queryConn{Conn: conn, lookup: l, network: network, server: server, sent: time.Now(), again: again, end: end}
	if packets, ok := conn.(packetConn); ok {
		return queryPacketConn{query, packets}, nil // package net checks for this interface
	}
	return query, nil
}

// queryConn is a connection to a name server, for one query.
type queryConn struct {
	net.Conn
	lookup  *lookup
	network string
	server  string
	sent    time.Time
	query   []byte        // last written
	again   time.Duration // time until it is written again; zero: never
	end     time.Time     // deadline of Read
}

// queryPacketConn is a queryConn over UDP.
type queryPacketConn struct {
	*queryConn
	packetConn
}

// packetConn is the interface by which package net recognizes UDP.
type packetConn interface {
	ReadFrom(b []byte) (int, net.Addr, error)
	WriteTo(b []byte, addr net.Addr) (int, error)
}

// SetDeadline sets the deadline of package net, which is five seconds ahead, or the end of the query's share of the lookup's time
// if that is earlier.
func (c *queryConn) SetDeadline(t time.Time) error {
	if !c.end.IsZero() && c.end.Before(t) {
		t = c.end
	}
	c.end = t
	return c.Conn.SetDeadline(t)
}

// Read reads a response. Over UDP, it sends the query again if none arrives in the time c.again.
func (c *queryConn) Read(b []byte) (int, error) {
	for c.network == "udp" && c.again > 0 && time.Until(c.end) > c.again {
		if err := c.SetReadDeadline(time.Now().Add(c.again)); err != nil {
			return 0, err
		}
		n, err := c.read(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if _, err := c.Write(c.query); err != nil {
			return 0, err
		}
	}
	if err := c.SetReadDeadline(c.end); err != nil {
		return 0, err
	}
	n, err := c.read(b)
	if err != nil && !errors.Is(err, net.ErrClosed) && !shortage.Is(err) { // package net closes a query that is cancelled
		nameServers.record(c.server, c.sent, false)
	}
	return n, err
}

// read reads once, and records a response or a shortage of this machine.
func (c *queryConn) read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil {
		c.lookup.answer(c.question(), c.code(b[:n]))
		nameServers.record(c.server, c.sent, true)
	} else {
		c.lookup.noteShortage(c.network, err)
	}
	return n, err
}

// Size of the header of a message, and the index of its byte whose lower half is the response code.
const (
	headerSize = 12
	codeByte   = 3
)

// question returns the question of the query. Over TCP, the query is preceded by its length.
func (c *queryConn) question() string {
	start := headerSize
	if c.network != "udp" {
		start += 2
	}
	return string(c.query[min(len(c.query), start):])
}

// code returns the response code. Over TCP, which is used only after a truncated response, it is 0.
func (c *queryConn) code(response []byte) int {
	if c.network != "udp" || len(response) < headerSize {
		return 0
	}
	return int(response[codeByte] & 0xf)
}

// Write stores and sends the query, and records a shortage of this machine.
func (c *queryConn) Write(b []byte) (int, error) {
	c.query = b
	c.lookup.ask(c.question())
	n, err := c.Conn.Write(b)
	c.lookup.noteShortage(c.network, err)
	return n, err
}
