package dial

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// CheckFresh returns an error if the block demands a minimum validity although the handler keeps connections, which do not show a
// renewed certificate. Argument is the argument of the handler that keeps them.
func (t *TLS) CheckFresh(argument string) error {
	if t == nil || t.MinValidity == 0 {
		return nil
	}
	return &probe.FieldError{
		Field: "tls.min_validity", Problem: "cannot be combined with " + argument + ", since a kept connection does not show a renewed certificate",
		Hint: "check the certificate by another probe",
	}
}

// Validity describes how long the certificates of a server are valid. The zero Validity is that of a connection without TLS.
type Validity struct {
	Until time.Time
	First string // the certificate that expires first: "certificate 2 of 3 (CN=R3)"
}

// maxSubject is the maximum length of a certificate's subject in a text, in bytes. It comes from the peer.
const maxSubject = 80

// ValidityOf returns how long the certificates of the peer are valid: those of the verified chain that is valid the longest or,
// without verification, all that the peer has sent.
func ValidityOf(conn net.Conn) Validity {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return Validity{}
	}
	state := secure.ConnectionState()
	chain := lastChain(state.VerifiedChains)
	if chain == nil {
		chain = state.PeerCertificates
	}
	first := firstToExpire(chain)
	if first == nil {
		return Validity{}
	}
	return Validity{first.NotAfter, nameCertificate(first, state.PeerCertificates)}
}

// nameCertificate returns a name for a certificate: its position among those that a server has sent, "the certificate" if it is the
// only one, or "the authority" if the server has not sent it.
func nameCertificate(c *x509.Certificate, sent []*x509.Certificate) string {
	i := slices.IndexFunc(sent, c.Equal)
	if i == 0 && len(sent) == 1 {
		return "the certificate"
	}
	which := "the authority"
	if i >= 0 {
		which = fmt.Sprintf("certificate %d of %d", i+1, len(sent))
	}
	if name := cmp.Or(c.Subject.CommonName, strings.Join(c.DNSNames[:min(len(c.DNSNames), 1)], "")); name != "" {
		which += " (CN=" + probe.OneLine(name, maxSubject) + ")"
	}
	return which
}

// Judge returns the result of an attempt at a server with the validity v. It changes only a success or a warning, and only if the
// block demands a longer validity; a nil t demands none. A clock that was set does not make the validity too short: see wallClock.
func (t *TLS) Judge(r probe.Result, v Validity) probe.Result {
	passed := r.Outcome == probe.Success || r.Outcome == probe.Warning
	if t == nil || t.MinValidity == 0 || v.Until.IsZero() || !passed {
		return r
	}
	earliest, _ := observeClock()
	if v.Until.Sub(earliest) >= t.MinValidity {
		return r
	}
	r.Outcome, r.Reason = probe.Failure, probe.ReasonTLSExpiring
	if t.OnShortValidity == "warn" {
		r.Outcome = probe.Warning
	}
	when := "expires in " + probe.Brief(v.Until.Sub(earliest))
	if v.Until.Before(earliest) {
		when = "expired " + probe.Brief(earliest.Sub(v.Until)) + " ago"
	}
	r.Detail = fmt.Sprintf("%s %s (%s); min_validity is %s", v.First, when, v.Until.UTC().Format("2006-01-02 15:04 MST"), probe.Brief(t.MinValidity))
	return r
}
