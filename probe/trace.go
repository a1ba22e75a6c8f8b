package probe

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// Trace is what an attempt over the network has learned beside its Result, for those who ask
// for it by WithTrace. What was not learned is zero.
type Trace struct {
	Peer netip.Addr // of the latest connection; if it failed, the first address that was tried
	TLS  *TLSTrace  // of the latest connection; nil without TLS, or if the handshake failed
	HTTP *HTTPTrace // of the latest response; nil if there was none, or the handler is another one than http

	HopLimit uint8 // of an ICMP echo reply as it arrived: TTL over IPv4; 0 without a reply

	Measured map[string]float64 // what a plugin has measured in the attempt, by name
}

// TLSTrace is what a TLS handshake has shown of the server.
type TLSTrace struct {
	Version         string    // "TLS 1.3"
	FirstExpiry     time.Time // of the certificates that the server has sent
	LastChainExpiry time.Time // of the verified chain that is valid the longest; zero without verification

	// Of the server's own certificate.
	SHA256   string   // hexadecimal
	Subject  string   // as in RFC 2253
	Issuer   string   // likewise
	DNSNames []string // that it is for
}

// HTTPTrace is what a response over HTTP has shown.
type HTTPTrace struct {
	ContentLength int64         // of its head; -1 for unknown
	BodyLength    int64         // that was read
	LastModified  time.Time     // zero without that header
	Transfer      time.Duration // from the first byte of the response to the end of its body
}

type traceKey struct{}

// recorder holds the Trace of an attempt.
type recorder struct {
	mu    sync.Mutex // guards trace
	trace Trace
}

// WithTrace returns a context for attempts of a Handler that record a Trace, and a function
// that returns what they have recorded. An attempt may cost more than without it: http reads
// the whole body of the response.
func WithTrace(ctx context.Context) (context.Context, func() Trace) {
	r := new(recorder)
	return context.WithValue(ctx, traceKey{}, r), func() Trace {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.trace
	}
}

// RecordTrace calls record with the Trace of the attempt whose context is ctx, if somebody has
// asked for it. Handlers call it; it is safe for concurrent use by multiple goroutines. Record
// must not block, and must not change in place what is behind a pointer or in a map.
func RecordTrace(ctx context.Context, record func(*Trace)) {
	r, ok := ctx.Value(traceKey{}).(*recorder)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	record(&r.trace)
}

// IsTraced reports whether somebody has asked for the Trace of the attempt whose context is ctx.
func IsTraced(ctx context.Context) bool { return ctx.Value(traceKey{}) != nil }
