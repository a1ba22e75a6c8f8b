package tcpprobe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// keepAliveHandler makes attempts over a connection that it keeps between attempts. The connection belongs to one probe: see
// ForProbe.
type keepAliveHandler struct {
	opener  *handler // opens connections
	maxEnds int      // Config.MaxEnds

	mu     sync.Mutex  // guards the fields below; not held while a connection is used
	conn   *keptConn   // nil if no connection is kept
	ends   []time.Time // when connections ended, the latest maxMaxEnds+1
	closed bool
}

// KernelAnswers returns the value of the handler that opens connections.
func (h *keepAliveHandler) KernelAnswers() bool { return h.opener.KernelAnswers() }

var (
	_ probe.EndpointHandler = (*keepAliveHandler)(nil)
	_ probe.WakingHandler   = (*keepAliveHandler)(nil)
	_ probe.StatefulHandler = (*keepAliveHandler)(nil)
	_ nonblock.Stepper      = (*keepAliveHandler)(nil)
	_ io.Closer             = (*keepAliveHandler)(nil)
)

// ForProbe returns a handler that keeps its own connection.
func (h *keepAliveHandler) ForProbe() probe.Handler {
	return &keepAliveHandler{opener: h.opener, maxEnds: h.maxEnds}
}

// Check is handler.Check.
func (h *keepAliveHandler) Check(t probe.Target) error { return h.opener.Check(t) }

// Endpoint is handler.Endpoint.
func (h *keepAliveHandler) Endpoint(t probe.Target) string { return h.opener.Endpoint(t) }

// Close closes the connection without waiting for running attempts. Later attempts keep no connection.
func (h *keepAliveHandler) Close() error {
	h.mu.Lock()
	c := h.conn
	h.conn, h.closed = nil, true
	h.mu.Unlock()
	if c != nil {
		c.close()
	}
	return nil
}

// drop closes the connection, and reports whether c was still the kept one.
func (h *keepAliveHandler) drop(c *keptConn) bool {
	h.mu.Lock()
	kept := h.conn == c
	if kept {
		h.conn = nil
	}
	h.mu.Unlock()
	if kept {
		c.close()
	}
	return kept
}

// Step makes an attempt without a goroutine if the connection is open and has no unread data; otherwise it leaves the attempt to
// Probe.
func (h *keepAliveHandler) Step(a *nonblock.Attempt) nonblock.Progress {
	a.FD = -1
	h.mu.Lock()
	c := h.conn
	h.mu.Unlock()
	if c == nil || c.endpoint != h.Endpoint(a.Target) || c.watch.Ended() || c.mayHaveUnread() {
		return nonblock.StepBlock
	}
	a.Result = h.judge(c.result())
	return nonblock.StepDone
}

// Probe makes one attempt.
func (h *keepAliveHandler) Probe(ctx context.Context, t probe.Target) probe.Result {
	return h.ProbeWaking(ctx, t, func() {})
}

// ProbeWaking is Probe. It calls wake when the connection that the attempt keeps ends, where connections can be watched.
func (h *keepAliveHandler) ProbeWaking(ctx context.Context, t probe.Target, wake func()) probe.Result {
	var took probe.Timings
	result := h.attempt(ctx, t, &took, wake)
	result.Timings = took
	return h.judge(result)
}

// endsWithin is the period over which ends of connections are counted.
const endsWithin = 5 * time.Minute

// judge returns the result of an attempt; a success becomes a warning if connections have ended too often.
func (h *keepAliveHandler) judge(r probe.Result) probe.Result {
	if h.maxEnds == 0 || r.Outcome != probe.Success {
		return r
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = slices.DeleteFunc(h.ends, func(at time.Time) bool { return time.Since(at) > endsWithin })
	if n := len(h.ends); n > h.maxEnds {
		r.Outcome, r.Reason = probe.Warning, probe.ReasonTCPClosed
		r.Detail = fmt.Sprintf("the connection ended %d times in %s, the last time %s ago: does the server restart? max_ends is %d",
			n, probe.Brief(time.Since(h.ends[0])), probe.Brief(time.Since(h.ends[n-1])), h.maxEnds)
	}
	return r
}

// noteEnd records that a connection has ended.
func (h *keepAliveHandler) noteEnd() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.maxEnds > 0 {
		h.ends = append(h.ends[max(0, len(h.ends)-maxMaxEnds):], time.Now())
	}
}

func (h *keepAliveHandler) attempt(ctx context.Context, t probe.Target, took *probe.Timings, wake func()) probe.Result {
	ctx = dial.InNetwork(ctx, &t)
	host, port, err := h.opener.dialer.HostPort(t)
	if err != nil {
		return dial.Result(err)
	}
	endpoint := h.Endpoint(t)
	if result, kept := h.check(endpoint); kept {
		return h.explainSilence(ctx, host, port, result)
	}
	conn, result := h.opener.open(ctx, host, port, took)
	if conn == nil {
		return result
	}
	if result.Outcome != probe.Success && result.Outcome != probe.Warning || ctx.Err() != nil { // conn has the deadline of ctx
		conn.Close()
		return result
	}
	h.keep(conn, endpoint, wake)
	return result
}

// check returns the result of an attempt over the kept connection to an endpoint, and false if there is none. The end of a
// connection fails one attempt only.
func (h *keepAliveHandler) check(endpoint string) (probe.Result, bool) {
	h.mu.Lock()
	c := h.conn
	h.mu.Unlock()
	if c == nil {
		return probe.Result{}, false
	}
	err := c.endError()
	switch {
	case err == nil && c.endpoint == endpoint:
		return c.result(), true
	case err == nil:
		h.drop(c)
		return probe.Result{}, false
	case !h.drop(c): // Close has closed it, or another attempt has found its end
		return dial.Result(dial.Cancelled()), true
	}
	h.noteEnd()
	known := dial.Classify(context.Background(), dial.Transferring, err)
	result := dial.Result(known)
	result.Detail = fmt.Sprintf("the connection was open for %v, then: %v", time.Since(c.since).Round(time.Millisecond), known)
	return result, true
}

// maxExplanation limits how long explainSilence tries a new connection: many kept connections may end together, and each trial
// occupies a worker.
const maxExplanation = time.Second

// explainSilence refines the result of a kept connection that timed out. A silent peer has crashed, or is unreachable, or only this
// connection was lost. A new connection shows which, because Linux ignores the responses of routers to keepalive packets: their
// sequence numbers are before the window.
func (h *keepAliveHandler) explainSilence(ctx context.Context, host string, port uint16, r probe.Result) probe.Result {
	if r.Reason != probe.ReasonTCPTimeout {
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, maxExplanation)
	defer cancel()
	conn, err := h.opener.dialer.Open(ctx, host, port, new(probe.Timings))
	known := (*dial.Error)(nil)
	switch {
	case err == nil:
		conn.Close()
		r.Reason = probe.ReasonTCPClosed
		r.Detail += "; a new connection opens"
	case errors.As(err, &known) && (known.Reason == probe.ReasonTCPUnreachable || known.Reason == probe.ReasonTCPRefused):
		r.Reason = known.Reason
		r.Detail += "; a new connection: " + known.Error()
	}
	return r
}

// keep keeps a connection until it ends or Close is called.
func (h *keepAliveHandler) keep(conn net.Conn, endpoint string, wake func()) {
	h.mu.Lock()
	if h.closed || h.conn != nil { // the probe was removed, or a concurrent attempt was faster
		h.mu.Unlock()
		conn.Close()
		return
	}
	c := keepConn(conn, endpoint)
	h.conn = c
	h.mu.Unlock()
	c.watch.Arm(wake)
}

// watcher watches the kept connections of all handlers. It runs one goroutine while there are any.
var watcher nonblock.Watcher

// keptConn is a connection that is kept between attempts.
type keptConn struct {
	conn     net.Conn
	endpoint string // of the dialer
	since    time.Time
	watch    *nonblock.Watch // nil where the system cannot watch: then attempts detect the end

	reading sync.Mutex // serializes attempts that read
}

func keepConn(conn net.Conn, endpoint string) *keptConn {
	return &keptConn{conn: conn, endpoint: endpoint, since: time.Now(), watch: watcher.Watch(conn)}
}

// result returns the result of an attempt while the connection is open.
func (c *keptConn) result() probe.Result {
	result := probe.Succeed("connected for " + time.Since(c.since).Round(time.Second).String())
	result.CertificateExpiry = dial.CertificateExpiry(c.conn)
	return result
}

const (
	// maxDiscard is the maximum number of bytes that one attempt discards of an open connection.
	maxDiscard = 1 << 20

	// discardTimeout limits the wait for the rest of a TLS record on an open connection, and for any data on one without a watch.
	// endTimeout limits the wait for the error of a connection that has ended, which is already available.
	discardTimeout = time.Millisecond
	endTimeout     = time.Second
)

// mayHaveUnread reports whether data may have arrived that was not read.
func (c *keptConn) mayHaveUnread() bool { return c.watch == nil || nonblock.Unread(c.conn) > 0 }

// endError returns why the connection has ended, or nil if it is open. It discards data that the peer has sent, so that the end of
// the connection behind the data is noticed.
func (c *keptConn) endError() error {
	c.reading.Lock()
	defer c.reading.Unlock()
	ended, timeout := c.watch.Ended(), discardTimeout
	switch {
	case ended:
		timeout = endTimeout
	case !c.mayHaveUnread():
		return nil
	}
	b := make([]byte, 16<<10)
	for n := 0; ended || n < maxDiscard && c.mayHaveUnread(); {
		_ = c.conn.SetReadDeadline(time.Now().Add(timeout)) // an error means that Read returns one too
		read, err := c.conn.Read(b)
		n += read
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && ended:
			return io.ErrUnexpectedEOF
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

func (c *keptConn) close() {
	c.watch.Remove()
	_ = dial.Close(c.conn) // the connection is closed in any case
}
