package httpprobe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// attempt records the course of one attempt. Package net/http calls its methods from its own goroutines, some of which outlive the
// request.
type attempt struct {
	ctx context.Context // of the whole attempt, with its deadline
	end context.CancelFunc
	own *url.URL // the configured URL

	mu        sync.Mutex // guards all below
	timings   probe.Timings
	dialing   chan struct{} // closed when the latest dial has finished; nil before the first one
	failure   error         // of the latest dial
	http2     bool          // the latest connection speaks HTTP/2
	asked     time.Time     // when the latest request was begun or, once that is known, sent
	responded bool          // a byte of its response was received
	firstByte time.Time     // when that byte was received
	status    int           // of that response; 0 if its head is incomplete
	expiry    int64         // earliest of the certificates of all connections, see dial.CertificateExpiry; 0: none
	facts     probe.Facts   // of the latest connection and response
	to        string        // host of the latest redirect that was followed
	validity  dial.Validity // of the connection whose certificates expire first
	conn      net.Conn      // the latest, if it is new and not through a proxy
	lost      int           // segments that were retransmitted on new connections
}

type attemptKey struct{}

// begin returns the context for the attempt's requests.
func (a *attempt) begin() context.Context {
	return httptrace.WithClientTrace(context.WithValue(a.ctx, attemptKey{}, a), &httptrace.ClientTrace{
		WroteRequest:         func(httptrace.WroteRequestInfo) { a.sent() },
		GotFirstResponseByte: a.responding,
		GotConn:              a.connected,
	})
}

func attemptOf(ctx context.Context) *attempt { return ctx.Value(attemptKey{}).(*attempt) }

// ask records that a request begins: the first one, or one after a redirect.
func (a *attempt) ask() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked, a.responded, a.status, a.failure = time.Now(), false, 0, nil
}

// dial records that a dial begins, and returns a function that records its result. With kept connections, an attempt may have
// several dials at the same time.
func (a *attempt) dial() (dialled func(took probe.Timings, conn net.Conn, http2 bool, err error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	done := make(chan struct{})
	a.dialing = done
	return func(took probe.Timings, conn net.Conn, http2 bool, err error) {
		defer close(done)
		a.dialled(took, conn, http2, err)
	}
}

func (a *attempt) dialled(took probe.Timings, conn net.Conn, http2 bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timings.Resolve += took.Resolve
	a.timings.Connect += took.Connect
	a.timings.TLS += took.TLS
	a.timings.Connected = a.timings.Connected || took.Connected
	a.failure = err
	a.asked = time.Now()
	a.http2, a.facts = http2, probe.Facts{Redirects: a.facts.Redirects}
	if a.conn = nil; err == nil {
		a.use(conn)
	}
}

// measure makes retransmissions on a new connection count.
func (a *attempt) measure(conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conn = conn
}

// use records the facts about a connection. The caller must hold mu.
func (a *attempt) use(conn net.Conn) {
	facts := dial.Facts(conn, a.own.Hostname())
	a.expiry, a.facts.Peer, a.facts.TLS = earlier(a.expiry, dial.CertificateExpiry(conn)), facts.Peer, facts.TLS
	if v := dial.ValidityOf(conn); a.validity.Until.IsZero() || !v.Until.IsZero() && v.Until.Before(a.validity.Until) {
		a.validity = v
	}
}

// earlier returns the earlier of two times; 0 means none.
func earlier(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// connected records the connection that a request uses, which may be a kept one.
func (a *attempt) connected(info httptrace.GotConnInfo) {
	if info.Reused {
		dial.Trace(a.ctx, inner(info.Conn))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.use(inner(info.Conn)); info.Reused {
		a.conn = nil
	}
}

func (a *attempt) sent() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.responded { // net/http may report the response first
		a.asked = time.Now()
	}
}

func (a *attempt) responding() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.responded, a.firstByte = true, time.Now()
	a.timings.FirstByte += a.firstByte.Sub(a.asked)
	if t := a.timings; a.conn != nil && t.Connect+t.TLS+t.FirstByte >= nonblock.MaySendAgain {
		a.lost += nonblock.Retransmissions(a.conn)
	}
}

// hasResponded reports whether a byte of the response to the latest request was received.
func (a *attempt) hasResponded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.responded
}

func (a *attempt) got(r *http.Response) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status = r.StatusCode
	a.facts.Protocol = protocolName(r.ProtoMajor, r.ProtoMinor)
}

// followed records that a redirect to a host is followed.
func (a *attempt) followed(redirects int, host string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.facts.Redirects, a.to = uint8(redirects), host
}

// result returns r with the timings and the facts of the attempt.
func (a *attempt) result(r probe.Result) probe.Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.Timings = a.timings
	r.CertificateExpiry = earlier(a.expiry, r.CertificateExpiry) // r may have the expiry from an error
	r.SetFacts(a.facts)
	return nonblock.Lossy(r, a.lost)
}

// shown returns the validity of the certificates that the servers presented.
func (a *attempt) shown() dial.Validity {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.validity
}

// settle waits for a dial that is being cancelled because the attempt's context is done: its error says what the attempt was
// waiting for.
func (a *attempt) settle() {
	a.mu.Lock()
	dialing := a.dialing
	a.mu.Unlock()
	if dialing != nil && a.ctx.Err() != nil {
		<-dialing
	}
}

// failed returns the result of an error of http.Client.Do.
func (a *attempt) failed(err error) probe.Result {
	a.settle()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.afterRedirect(a.classify(err))
}

// afterRedirect adds the latest redirect to the detail of a result. The caller must hold mu.
func (a *attempt) afterRedirect(r probe.Result) probe.Result {
	if a.to != "" {
		r.Detail = probe.CleanText(fmt.Sprintf("after a redirect to %s: %s", probe.CleanText(a.to, maxCause), r.Detail), probe.MaxDetail)
	}
	return r
}

// judged returns the result of a response; unless it is a success, its detail names the latest redirect.
func (a *attempt) judged(r probe.Result) probe.Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Outcome == probe.Success {
		return r
	}
	return a.afterRedirect(r)
}

// classify returns the result of an error of http.Client.Do. The caller must hold mu.
func (a *attempt) classify(err error) probe.Result {
	var dialling *dial.Error
	switch {
	case errors.Is(a.ctx.Err(), context.Canceled):
		return dial.Result(dial.Cancelled())
	case errors.As(err, &dialling), a.ctx.Err() != nil && errors.As(a.failure, &dialling):
		return dial.Result(dialling)
	case a.ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return noHeadInTime()
	case a.status != 0:
		return probe.Fail(probe.ReasonHTTPRedirect, "status %d: %s", a.status, cause(err))
	}
	return a.headFailed(err)
}

func noHeadInTime() probe.Result {
	return probe.Fail(probe.ReasonHTTPTimeout, "no response head came in time")
}

// headFailed returns the result of an error between the request and the end of the response's head. The result contains neither the
// URL nor any data that is not HTTP, which may be a secret.
func (a *attempt) headFailed(err error) probe.Result {
	if of := (*url.Error)(nil); errors.As(err, &of) {
		err = of.Err
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op
	}
	known := dial.Classify(a.ctx, dial.Transferring, err)
	switch {
	case known.Reason != probe.ReasonTCPFailed:
		return dial.Result(known)
	case a.http2: // net/http reports it before the first byte of a response
		return probe.Fail(probe.ReasonHTTPProtocol, "the response is not valid HTTP/2%s", headProblem(err)+http2Error(err))
	case a.responded:
		return probe.Fail(probe.ReasonHTTPProtocol, "the response is not valid HTTP%s", headProblem(err))
	}
	return probe.Fail(probe.ReasonTCPClosed, "the peer closed the connection without a response")
}

// maxCause is the maximum length of the text about a redirect that was not followed, in bytes: its address comes from the server.
const maxCause = 256

// cause returns the text of an error without the prefix that http.Client adds: its URL may contain a password.
func cause(err error) string {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return probe.CleanText(err.Error(), maxCause)
}
