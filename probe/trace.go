package probe

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// Trace has details of an attempt over the network that are not part of its Result. It is recorded on request: see WithTrace. A
// field that was not learned is zero.
type Trace struct {
	Peer netip.Addr // peer of the latest connection; if it failed, the first address that was tried
	TLS  *TLSTrace  // handshake of the latest connection; nil without TLS, or if the handshake failed
	HTTP *HTTPTrace // latest response; nil if there was none, or if the handler is not http

	HopLimit uint8 // hop limit of an ICMP echo reply on arrival, TTL for IPv4; 0 without a reply

	Measured map[string]float64 // numbers that the handler measured in the attempt, by name
}

// TLSTrace has details of a TLS handshake.
type TLSTrace struct {
	Version         string    // "TLS 1.3"
	FirstExpiry     time.Time // earliest expiry among the certificates that the server sent
	LastChainExpiry time.Time // expiry of the verified chain that is valid the longest; zero without verification

	// Details of the server's own certificate.
	SHA256   string   // hexadecimal
	Subject  string   // format of RFC 2253
	Issuer   string   // format of RFC 2253
	DNSNames []string // names that it is valid for
}

// HTTPTrace has details of an HTTP response.
type HTTPTrace struct {
	ContentLength int64         // from the header; -1 if unknown
	BodyLength    int64         // bytes that were read
	LastModified  time.Time     // zero if the header is missing
	Transfer      time.Duration // from the first byte of the response to the end of its body
}

type traceKey struct{}

// recorder holds the Trace of an attempt.
type recorder struct {
	mu    sync.Mutex // guards trace
	trace Trace
}

// WithTrace returns a context that makes a Handler record a Trace of its attempts, and a function that returns the Trace so far.
// A traced attempt may cost more: http reads the whole body of the response.
func WithTrace(ctx context.Context) (context.Context, func() Trace) {
	r := new(recorder)
	return context.WithValue(ctx, traceKey{}, r), func() Trace {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.trace
	}
}

// RecordTrace calls record with the Trace of the attempt whose context is ctx, if a trace was requested with WithTrace. It is for
// handlers, and is safe for concurrent use by multiple goroutines. record must not block, and must not modify data behind a
// pointer or in a map in place.
func RecordTrace(ctx context.Context, record func(*Trace)) {
	r, ok := ctx.Value(traceKey{}).(*recorder)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	record(&r.trace)
}

// IsTraced reports whether a trace of the attempt whose context is ctx was requested.
func IsTraced(ctx context.Context) bool { return ctx.Value(traceKey{}) != nil }
