package httpprobe

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// attempt notes how one attempt goes. Net/http calls its methods from
// goroutines of its own, some of which outlive the request.
type attempt struct {
	ctx  context.Context // of the whole attempt, with its deadline
	host string          // that the probe is for

	mu       sync.Mutex
	timings  probe.Timings
	dialing  chan struct{} // closed when the latest dial has ended; nil: there was none
	failure  error         // of the latest dial
	http2    bool          // what it made speaks HTTP/2
	asked    time.Time     // when the latest request was sent, as far as it is known
	answered bool          // a byte of the answer to it has come
	status   int           // of that answer; 0: its head has not come
}

type attemptKey struct{}

// begin returns the context for an attempt's requests.
func (a *attempt) begin() context.Context {
	return httptrace.WithClientTrace(context.WithValue(a.ctx, attemptKey{}, a), &httptrace.ClientTrace{
		WroteRequest:         func(httptrace.WroteRequestInfo) { a.sent() },
		GotFirstResponseByte: a.answer,
	})
}

func attemptOf(ctx context.Context) *attempt { return ctx.Value(attemptKey{}).(*attempt) }

// ask notes that a request begins: the first, or the one after a redirect.
func (a *attempt) ask() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked, a.answered, a.status, a.failure = time.Now(), false, 0, nil
}

// dial notes that a dial begins, and returns what notes its end. With kept
// connections several may be under way for one attempt.
func (a *attempt) dial() (dialled func(probe.Timings, net.Conn, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	done := make(chan struct{})
	a.dialing = done
	return func(took probe.Timings, conn net.Conn, err error) {
		defer close(done)
		a.dialled(took, conn, err)
	}
}

func (a *attempt) dialled(took probe.Timings, conn net.Conn, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timings.Resolve += took.Resolve
	a.timings.Connect += took.Connect
	a.timings.TLS += took.TLS
	a.failure = err
	a.asked = time.Now()
	a.http2 = err == nil && speaksHTTP2(conn)
}

func (a *attempt) sent() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.answered { // net/http may tell of the answer first
		a.asked = time.Now()
	}
}

func (a *attempt) answer() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answered = true
	a.timings.FirstByte += time.Since(a.asked)
}

func (a *attempt) got(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status = status
}

// result adds the timings to a result.
func (a *attempt) result(r probe.Result) probe.Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.Timings = a.timings
	return r
}

// settle waits for a dial that is still being ended by the end of the attempt's
// context, since it knows best what the attempt was waiting for.
func (a *attempt) settle() {
	a.mu.Lock()
	dialing := a.dialing
	a.mu.Unlock()
	if dialing != nil && a.ctx.Err() != nil {
		<-dialing
	}
}

// failed classifies an error of http.Client.Do.
func (a *attempt) failed(err error) probe.Result {
	a.settle()
	a.mu.Lock()
	defer a.mu.Unlock()
	var dialling *dial.Error
	switch {
	case errors.Is(a.ctx.Err(), context.Canceled):
		return dial.Result(dial.Cancelled())
	case errors.As(err, &dialling), a.ctx.Err() != nil && errors.As(a.failure, &dialling):
		return dial.Result(dialling)
	case a.ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return lateHead()
	case a.status != 0:
		return probe.Fail(probe.ReasonHTTPRedirect, "status %d: %s", a.status, cause(err))
	}
	return a.broke(err)
}

func lateHead() probe.Result {
	return probe.Fail(probe.ReasonHTTPTimeout, "no response head came in time")
}

// broke classifies an error between the request and the end of the response's
// head. What does not look like HTTP is not told: it may be a secret. The
// request's URL is neither.
func (a *attempt) broke(err error) probe.Result {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op
	}
	known := dial.Classify(a.ctx, dial.Transferring, err)
	switch {
	case known.Reason != probe.ReasonTCPFailed:
		return dial.Result(known)
	case a.answered, a.http2: // HTTP/2 breaks without the first byte of an answer
		return probe.Fail(probe.ReasonHTTPProtocol, "the answer is not HTTP, or its head is larger than %d bytes", maxHead)
	}
	return probe.Fail(probe.ReasonTCPClosed, "the peer closed the connection without an answer")
}

// maxCause bounds what is told of a redirect that was not followed, in bytes: its
// address comes from a stranger.
const maxCause = 256

// cause is the text of an error without what http.Client puts around it: the
// URL may hold a password.
func cause(err error) string {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return probe.CleanText(err.Error(), maxCause)
}
