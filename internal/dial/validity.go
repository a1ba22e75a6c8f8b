package dial

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// CheckFresh returns an error if the block demands something of certificates although a handler
// keeps connections, which do not show a renewed certificate. Argument is that of the handler.
func (t *TLS) CheckFresh(argument string) error {
	if t == nil || t.MinValidity == 0 {
		return nil
	}
	return &probe.FieldError{
		Field: "tls.min_validity", Problem: "cannot be combined with " + argument + ", since a kept connection does not show a renewed certificate",
		Hint: "check the certificate by another probe",
	}
}

// ValidUntil returns until when the certificate of the peer is valid: the chain of those that were
// verified which is valid the longest or, without verification, the peer's own certificate. It is
// the zero Time without TLS.
func ValidUntil(conn net.Conn) time.Time {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return time.Time{}
	}
	state := secure.ConnectionState()
	if last := lastChainExpiry(state.VerifiedChains); !last.IsZero() || len(state.PeerCertificates) == 0 {
		return last
	}
	return state.PeerCertificates[0].NotAfter
}

// Judge returns the result of an attempt in which a certificate was shown that is valid until a
// time; the zero Time for none. Only a success or a warning changes, if the block demands a longer
// validity; a nil t demands nothing. A clock that was set does not make the validity too short: see
// wallClock.
func (t *TLS) Judge(r probe.Result, until time.Time) probe.Result {
	passed := r.Outcome == probe.Success || r.Outcome == probe.Warning
	if t == nil || t.MinValidity == 0 || until.IsZero() || !passed {
		return r
	}
	earliest, _ := observeClock()
	if until.Sub(earliest) >= t.MinValidity {
		return r
	}
	r.Outcome, r.Reason = probe.Failure, probe.ReasonTLSExpiring
	if t.OnShortValidity == "warn" {
		r.Outcome = probe.Warning
	}
	when := "expires in " + probe.Brief(until.Sub(earliest))
	if until.Before(earliest) {
		when = "expired " + probe.Brief(earliest.Sub(until)) + " ago"
	}
	r.Detail = fmt.Sprintf("the certificate %s (%s); min_validity is %s", when, until.UTC().Format("2006-01-02 15:04 MST"), probe.Brief(t.MinValidity))
	return r
}
