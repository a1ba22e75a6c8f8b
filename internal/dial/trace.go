package dial

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"net"
	"net/netip"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Trace records a connection in the probe.Trace of the attempt with the context ctx: the peer, and the data of its handshake. Open,
// Connect and Handshake call Trace themselves; for a kept connection, the caller must do so.
func Trace(ctx context.Context, conn net.Conn) {
	probe.RecordTrace(ctx, func(t *probe.Trace) {
		t.Peer, t.TLS = peerOf(conn), nil
		if secure, ok := conn.(*tls.Conn); ok {
			t.TLS = tlsTrace(secure.ConnectionState())
		}
	})
}

// traceFailure records that no connection could be made to any address of a host.
func traceFailure(ctx context.Context, ips []netip.Addr) {
	probe.RecordTrace(ctx, func(t *probe.Trace) {
		t.Peer, t.TLS = netip.Addr{}, nil
		if len(ips) > 0 {
			t.Peer = ips[0].WithZone("")
		}
	})
}

func tlsTrace(state tls.ConnectionState) *probe.TLSTrace {
	t := &probe.TLSTrace{Version: tls.VersionName(state.Version), LastChainExpiry: lastChainExpiry(state.VerifiedChains)}
	if len(state.PeerCertificates) == 0 {
		return t
	}
	own := state.PeerCertificates[0]
	sum := sha256.Sum256(own.Raw)
	t.FirstExpiry = time.Unix(firstExpiry(state.PeerCertificates), 0)
	t.SHA256, t.Subject, t.Issuer, t.DNSNames = hex.EncodeToString(sum[:]), own.Subject.String(), own.Issuer.String(), own.DNSNames
	return t
}

// lastChainExpiry returns when the last of the verified chains expires; zero if there are none.
func lastChainExpiry(chains [][]*x509.Certificate) time.Time {
	if last := firstToExpire(lastChain(chains)); last != nil {
		return last.NotAfter
	}
	return time.Time{}
}

// lastChain returns the chain that is valid the longest, where a chain expires with its first certificate; nil if there are none.
func lastChain(chains [][]*x509.Certificate) (last []*x509.Certificate) {
	for _, chain := range chains {
		if at := firstToExpire(chain); at != nil && (last == nil || at.NotAfter.After(firstToExpire(last).NotAfter)) {
			last = chain
		}
	}
	return last
}
