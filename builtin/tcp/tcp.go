// Package tcpprobe is the tcp handler: an attempt succeeds when the target takes
// a connection and, where asked, answers what is expected.
//
// A connection is made for each attempt and closed at once, unless it is to be
// kept (Config.KeepAlive). That the target takes it says that its system does: a
// program that hangs still passes, unless an answer is expected.
package tcpprobe

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// Handler makes attempts over TCP. New makes it. It is safe for use by many
// goroutines at once.
type Handler struct {
	dialer *dial.Dialer
	tls    *tls.Config // nil: none
	send   []byte
	met    func(answer []byte) bool // nil: an answer is not waited for
	slow   bool                     // met takes longer than to search for bytes
	keeper *keeper                  // nil: no connection is kept
	odd    dial.OddPlaces           // where attempts cannot be made in steps
}

var _ probe.WakingHandler = (*Handler)(nil)

// Close closes the connections that are kept.
func (h *Handler) Close() error {
	if h.keeper != nil {
		h.keeper.close()
	}
	return nil
}

// Check says what a target lacks for this handler, or nil. An error is a
// *probe.FieldError for the field "host" or "port".
func (h *Handler) Check(t probe.Target) error { return h.dialer.Check(t) }

// Probe makes one attempt. The answer never stands in the result: whoever may
// point a probe at something must not be able to read it that way.
func (h *Handler) Probe(ctx context.Context, t probe.Target) probe.Result {
	return h.ProbeWaking(ctx, t, func() {})
}

// ProbeWaking is Probe. It calls wake when a connection that is kept has ended.
func (h *Handler) ProbeWaking(ctx context.Context, t probe.Target, wake func()) probe.Result {
	var took probe.Timings
	result := h.attempt(ctx, t, &took, wake)
	result.Timings = took
	return result
}

func (h *Handler) attempt(ctx context.Context, t probe.Target, took *probe.Timings, wake func()) probe.Result {
	host, port, err := h.dialer.Place(t)
	if err != nil {
		return dial.Result(err)
	}
	if h.keeper != nil {
		return h.ask(ctx, t.Name, host, port, took, wake)
	}
	conn, result := h.open(ctx, host, port, took)
	if conn != nil {
		conn.Close()
	}
	return result
}

// open makes a connection and talks over it.
func (h *Handler) open(ctx context.Context, host string, port uint16, took *probe.Timings) (net.Conn, probe.Result) {
	conn, err := h.connect(ctx, host, port, took)
	if err != nil {
		return nil, dial.Result(err)
	}
	return conn, h.talk(ctx, conn, took)
}

// talk sends what there is to send, and waits for what is expected.
func (h *Handler) talk(ctx context.Context, conn net.Conn, took *probe.Timings) probe.Result {
	defer dial.Bind(ctx, conn)()
	if len(h.send) > 0 {
		if _, err := conn.Write(h.send); err != nil {
			return dial.Result(dial.Classify(ctx, dial.Transferring, err))
		}
	}
	if h.met == nil {
		return probe.Succeed("")
	}
	return h.listen(ctx, conn, took)
}

func (h *Handler) connect(ctx context.Context, host string, port uint16, took *probe.Timings) (net.Conn, error) {
	conn, err := h.dialer.Open(ctx, host, port, took)
	if err != nil || h.tls == nil {
		return conn, err
	}
	return dial.Handshake(ctx, conn, h.tls, host, took)
}

// maxReads bounds in how many pieces an answer may come. Each piece has the
// whole answer searched again, so a stranger that sends single bytes could
// otherwise keep a processor busy.
const maxReads = 1024

func (h *Handler) listen(ctx context.Context, conn net.Conn, took *probe.Timings) probe.Result {
	start := time.Now()
	answer := make([]byte, 0, probe.MaxDetail)
	for range maxReads {
		n, err := conn.Read(answer[len(answer):cap(answer)])
		if n > 0 && len(answer) == 0 {
			took.FirstByte = time.Since(start)
		}
		answer = answer[:len(answer)+n]
		switch {
		case n > 0 && h.met(answer):
			return probe.Succeed("")
		case err != nil:
			return unmet(ctx, len(answer), err)
		case len(answer) == cap(answer):
			return unmetByAll(len(answer))
		}
	}
	return probe.Fail(probe.ReasonTCPExpect, "the answer came in more than %d pieces and is not what was expected", maxReads)
}

// unmetByAll is the result of an answer of which all n bytes are seen that are
// looked at.
func unmetByAll(n int) probe.Result {
	return probe.Fail(probe.ReasonTCPExpect, "the first %d bytes of the answer are not what was expected", n)
}

// unmet is the result of an answer that broke off after n bytes.
func unmet(ctx context.Context, n int, err error) probe.Result {
	broke := dial.Classify(ctx, dial.Transferring, err)
	switch {
	case errors.Is(err, io.EOF) && n > 0:
		return probe.Fail(probe.ReasonTCPExpect, "the answer of %d bytes is not what was expected", n)
	case broke.Reason == probe.ReasonTCPTimeout:
		return probe.Fail(broke.Reason, "the expected answer did not come in time; %d bytes came", n)
	}
	return dial.Result(broke)
}
