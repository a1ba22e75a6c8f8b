package probe

import (
	"net/netip"
	"unique"
)

// Facts are what an attempt over the network has learned about the peer, beside the outcome. The
// engine keeps them with the Result; a Trace has more, for one attempt.
// A fact that was not learned is zero.
type Facts struct {
	Peer      netip.Addr // that the host's name was resolved to, of the last connection; not if an address is configured
	Protocol  string     // of the response: "HTTP/1.0", "HTTP/1.1" or "HTTP/2.0"
	TLS       uint16     // version of TLS, as in package crypto/tls
	Redirects uint8      // how many redirects were followed
}

// Facts returns the facts of the attempt, besides HTTPStatus and CertificateExpiry.
func (r *Result) Facts() Facts {
	if r.facts == (unique.Handle[Facts]{}) {
		return Facts{}
	}
	return r.facts.Value()
}

// SetFacts sets the facts of the attempt. Results with equal facts share them in memory.
func (r *Result) SetFacts(f Facts) {
	r.facts = unique.Handle[Facts]{}
	if f != (Facts{}) {
		r.facts = unique.Make(f)
	}
}
