package probe

import (
	"net/netip"
	"unique"
)

// Facts are details about the peer that an attempt over the network learned in addition to its outcome. The engine keeps them
// with the Result; a Trace has more details, but for one attempt only. A fact that was not learned is zero.
type Facts struct {
	Peer      netip.Addr // address of the last connection, if a host name was resolved; not set if an address is configured
	Protocol  string     // of the response: "HTTP/1.0", "HTTP/1.1" or "HTTP/2.0"
	TLS       uint16     // TLS version, as in package crypto/tls
	Redirects uint8      // number of redirects that were followed
}

// Facts returns the facts of the attempt except HTTPStatus and CertificateExpiry, which are fields of r.
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
