package sandbox

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/grant"
)

// startTLS starts TLS on an open connection.
func (n *network) startTLS(a args) int64 {
	options, errno := n.memory.text(a, 1, abi.MaxOptions)
	if errno != abi.OK {
		return i32(0, errno)
	}
	s, ok := n.open.get(a.i32(0))
	if !ok {
		return i32(0, abi.EBADF)
	}
	n.cpu.releaseSlot()
	s.stopReader()
	if unread, _ := s.readable(); unread > 0 || s.datagram() || s.dest.Network == "tls" {
		return i32(0, n.failf(abi.EINVAL, "TLS cannot start: the descriptor uses TLS already, is not a stream, or has unread bytes"))
	}
	if errno := n.countDial("tls"); errno != abi.OK {
		return i32(0, errno)
	}
	config, errno := n.readTLSOptions(options, s.dest)
	if errno != abi.OK {
		return i32(0, errno)
	}
	return i32(0, n.secure(n.life.ctx, s, config, len(options)))
}

// readTLSOptions parses the options of a handshake with a destination, and charges the guest for the
// handshake.
func (n *network) readTLSOptions(options string, d grant.Dest) (*tls.Config, abi.Errno) {
	n.cpu.charge(unitsHandshake + unitsOptionByte*len(options))
	config, err := tlsConfig(options, d)
	if err != nil {
		return nil, n.failf(abi.EINVAL, "%v", err)
	}
	return config, abi.OK
}

// secure performs a TLS handshake as the client, after which the socket transfers plaintext over TLS.
// size is the length of the options. It never ends the call by a panic.
func (n *network) secure(ctx context.Context, s *socket, config *tls.Config, size int) abi.Errno {
	if !n.open.reserveFor(s, tlsSize+optionSize*int64(size)) {
		return n.failMemory()
	}
	transport := &transport{Conn: s.conn, handshaking: n.cpu}
	conn, err := dial.Handshake(ctx, transport, config, config.ServerName, &n.timings)
	n.cpu.releaseSlot()
	transport.handshaking = nil
	if err != nil {
		n.expiry = dial.Result(err).CertificateExpiry
		return n.fail(networkError(err))
	}
	n.expiry = dial.CertificateExpiry(conn)
	n.open.secured(s, conn)
	return abi.OK
}

// transport is the connection below TLS. Verifying certificates and signing take long: during the
// handshake the call has a slot whenever it does not wait for the peer.
type transport struct {
	net.Conn
	handshaking *cpu // nil after the handshake
}

func (t *transport) Read(p []byte) (int, error)  { return t.wait(t.Conn.Read, p) }
func (t *transport) Write(p []byte) (int, error) { return t.wait(t.Conn.Write, p) }

// NetConn returns the underlying connection.
func (t *transport) NetConn() net.Conn { return t.Conn }

// wait calls do, which may wait for the peer.
func (t *transport) wait(do func([]byte) (int, error), p []byte) (int, error) {
	c := t.handshaking
	if c == nil {
		return do(p)
	}
	c.releaseSlot()
	n, err := do(p)
	if now := time.Now(); err == nil {
		if !c.awaitSlot(now) {
			return n, errStopped
		}
		c.grantedAt = c.slotSince
	}
	return n, err
}

// tlsConfig parses the options of start_tls.
func tlsConfig(options string, d grant.Dest) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if d.Network != "unix" {
		config.ServerName = dial.ServerName(d.Host)
	}
	var cert, key string
	for text := range strings.Lines(options) {
		name, value, ok := strings.Cut(strings.TrimSuffix(text, "\n"), "=")
		if !ok {
			return nil, errors.New("TLS option has no =")
		}
		switch value = unescape(value); name {
		case "server_name":
			config.ServerName = dial.CanonicalHost(value)
		case "alpn":
			config.NextProtos = append(config.NextProtos, value)
		case "verify":
			config.InsecureSkipVerify = value == "none"
		case "ca_pem":
			config.RootCAs = x509.NewCertPool()
			if !config.RootCAs.AppendCertsFromPEM([]byte(value)) {
				return nil, errors.New("TLS option ca_pem contains no certificate")
			}
		case "cert_pem":
			cert = value
		case "key_pem":
			key = value
		}
	}
	if config.ServerName == "" && !config.InsecureSkipVerify {
		return nil, errors.New("TLS option server_name must be set: there is no host name to verify")
	}
	return config, tlsKey(config, cert, key)
}

// maxKeyPEM bounds key_pem, in bytes: parsing a huge key and signing with it takes long and cannot
// be interrupted. A key of 4096 bits fits, and takes a few milliseconds.
const maxKeyPEM = 4 << 10

func tlsKey(config *tls.Config, cert, key string) error {
	switch {
	case cert+key == "":
		return nil
	case len(key) > maxKeyPEM:
		return fmt.Errorf("TLS option key_pem is %d bytes long, at most %d are allowed", len(key), maxKeyPEM)
	}
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		return errors.New("TLS options cert_pem and key_pem are not a valid pair") // the error of crypto/tls may contain the key
	}
	config.Certificates = []tls.Certificate{pair}
	return nil
}

// connInfo writes a property of a connection for the guest.
func (n *network) connInfo(a args) int64 {
	s, ok := n.open.get(a.i32(0))
	if !ok {
		return i32(0, abi.EBADF)
	}
	var state tls.ConnectionState
	if conn, ok := s.conn.(*tls.Conn); ok {
		state = conn.ConnectionState()
	}
	var text string
	switch a.u32(1) {
	case abi.InfoRemote:
		text = s.conn.RemoteAddr().String()
	case abi.InfoLocal:
		text = s.conn.LocalAddr().String()
	case abi.InfoALPN:
		text = state.NegotiatedProtocol
	case abi.InfoTLS:
		if state.Version != 0 {
			text = strings.TrimPrefix(tls.VersionName(state.Version), "TLS ")
		}
	case abi.InfoCertificate:
		text = n.certificateLines(state.PeerCertificates)
	default:
		return i32(0, abi.ENOTSUP)
	}
	return n.memory.give(text, a.u32(2), a.u32(3))
}

// maxNames bounds the number of DNS names of a certificate that conn_info returns.
const maxNames = 100

// certificateLines returns the peer's certificate in the format of InfoCertificate.
func (n *network) certificateLines(chain []*x509.Certificate) string {
	if len(chain) == 0 {
		return ""
	}
	cert := chain[0]
	n.cpu.charge(len(cert.Raw) / textPerUnit)
	sum := sha256.Sum256(cert.Raw)
	var b strings.Builder
	line(&b, "sha256", hex.EncodeToString(sum[:]))
	line(&b, "not_before", strconv.FormatInt(cert.NotBefore.Unix(), 10))
	line(&b, "not_after", strconv.FormatInt(cert.NotAfter.Unix(), 10))
	line(&b, "subject", nameText(cert.RawSubject, cert.Subject))
	line(&b, "issuer", nameText(cert.RawIssuer, cert.Issuer))
	for _, name := range cert.DNSNames[:min(len(cert.DNSNames), maxNames)] {
		line(&b, "dns", probe.CleanText(name, abi.MaxAddress))
	}
	return b.String()
}

// maxRawName bounds the names of a certificate that are formatted, in bytes: the time for that
// grows with the square of their length.
const maxRawName = 4 << 10

// nameText formats a name. It returns "" if the name is too long.
func nameText(raw []byte, name pkix.Name) string {
	if len(raw) > maxRawName {
		return ""
	}
	return probe.CleanText(name.String(), abi.MaxAddress)
}
