package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/probe"
)

// TLS is the tls block of a handler. Its files are read when the handler is created.
type TLS struct {
	Verify     *bool  `hcl:"verify,optional" doc:"whether the certificate of the server must be valid now, match the name of the server, and be signed by a trusted authority. Without that, a certificate that Go cannot read, such as one whose names are not ASCII or whose RSA key has more than 8192 bits, makes the attempt unknown" default:"true"`
	CAFile     string `hcl:"ca_file,optional,path" doc:"PEM file with the authorities to trust; not with verify = false" default:"those of the system"`
	CertFile   string `hcl:"cert_file,optional,path" doc:"PEM file with the client certificate, for a server that asks for one; needs key_file" default:"none"`
	KeyFile    string `hcl:"key_file,optional,path" doc:"PEM file with the private key of the client certificate" default:"none"`
	ServerName string `hcl:"server_name,optional" doc:"name that is sent to the server (SNI) and must match its certificate" default:"the host to connect to"`
	MinVersion string `hcl:"min_version,optional" oneof:"1.0 1.1 1.2 1.3" doc:"minimum version of TLS" default:"1.2"`

	MinValidity     time.Duration `hcl:"min_validity,optional" doc:"how much longer the certificate of the server must be valid, such as \"14d\". With verification the whole chain up to a trusted authority counts, by the chain that is valid the longest, otherwise all certificates that the server sends. The detail names the first that expires. Not with connections that are kept, which do not show a renewed certificate" default:"0s" min:"0s" max:"8784h"`
	OnShortValidity string        `hcl:"on_short_validity,optional" oneof:"fail warn" doc:"what an attempt is that succeeds with a certificate that expires sooner than min_validity demands: a failure or a warning, with the reason tls.expiring" default:"fail"`
}

// MaxFile is the maximum size of a PEM file, in bytes. A system's list of all authorities has about 250 KB.
const MaxFile = 4 << 20

// Load reads the files and returns the configuration of a handshake. A nil t means the defaults, for a handler that may never make
// a handshake. An error is a *probe.FieldError for a field such as "tls.ca_file".
func (t *TLS) Load() (*tls.Config, error) {
	used := t != nil
	if !used {
		t = new(TLS)
	}
	if err := limits.Check(t, "tls.").Err(); err != nil {
		return nil, err
	}
	if t.OnShortValidity != "" && t.MinValidity == 0 {
		return nil, probe.FieldErrorf("tls.on_short_validity", "has no effect without tls.min_validity")
	}
	name := CanonicalHost(t.ServerName)
	config := &tls.Config{MinVersion: tlsVersions[t.MinVersion], ServerName: name}
	if config.InsecureSkipVerify = t.Verify != nil && !*t.Verify; config.InsecureSkipVerify && t.CAFile != "" {
		return nil, probe.FieldErrorf("tls.ca_file", "has no effect when tls.verify is false")
	}
	if problem := HostProblem(name); name != "" && problem != "" {
		return nil, probe.FieldErrorf("tls.server_name", "is %q%s", t.ServerName, problem)
	}
	var err error
	if config.RootCAs, err = loadAuthorities(t.CAFile); err != nil {
		return nil, err
	}
	if used && config.RootCAs == nil && !config.InsecureSkipVerify {
		config.RootCAs, _ = systemAuthorities() // Handshake tries again after an error
	}
	if config.Certificates, err = loadPair(t.CertFile, t.KeyFile); err != nil {
		return nil, err
	}
	return config, nil
}

var tlsVersions = map[string]uint16{
	"": tls.VersionTLS12, "1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13,
}

func loadAuthorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := readPEM("tls.ca_file", file, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, probe.FieldErrorf("tls.ca_file", "has no valid certificate in %s", file)
	}
	return pool, nil
}

func loadPair(certFile, keyFile string) ([]tls.Certificate, error) {
	switch {
	case certFile == "" && keyFile == "":
		return nil, nil
	case certFile == "":
		return nil, probe.FieldErrorf("tls.cert_file", "must be set, since tls.key_file is")
	case keyFile == "":
		return nil, probe.FieldErrorf("tls.key_file", "must be set, since tls.cert_file is")
	}
	cert, err := readPEM("tls.cert_file", certFile, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	key, err := readPEM("tls.key_file", keyFile, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, probe.FieldErrorf("tls.key_file", "%s is not the key of %s: %v", keyFile, certFile, err)
	}
	return []tls.Certificate{pair}, nil
}

// readPEM reads a file that must contain a block whose type ends with kind.
func readPEM(name, file, kind string) ([]byte, error) {
	text, err := files.Read(file, MaxFile)
	if err != nil {
		wrong := &probe.FieldError{Field: name, Problem: fmt.Sprintf("cannot be read: %v", err)}
		if errors.Is(err, os.ErrNotExist) && !filepath.IsAbs(file) {
			wrong.Hint = "a relative path starts at the working directory of the engine"
		}
		return nil, wrong
	}
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, probe.FieldErrorf(name, "has no PEM block of type %s in %s", kind, file)
		}
		if strings.HasSuffix(block.Type, kind) {
			return text, nil
		}
	}
}

// Handshake makes a client's TLS handshake over conn and adds the time it took to took. If config has no ServerName, host is used.
// If the handshake fails, Handshake closes conn. Every error is an *Error.
func Handshake(ctx context.Context, conn net.Conn, config *tls.Config, host string, took *probe.Timings) (*tls.Conn, error) {
	defer since(time.Now(), &took.TLS)
	observeClock()
	config, err := complete(config, host)
	if err != nil {
		conn.Close()
		return nil, Classify(ctx, Handshaking, fmt.Errorf("tls handshake: %w", err))
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		known := Classify(ctx, Handshaking, handshakeError{err})
		if config.InsecureSkipVerify && isUnreadable(err) {
			known.Outcome, known.Err = probe.Unknown, unreadableError{err}
		}
		known.CertificateExpiry = firstExpiry(shownCertificates(secure, err))
		return nil, known
	}
	Trace(ctx, secure)
	return secure, nil
}

// handshakeError is an error of a handshake. Its text describes what the peer did instead, without any bytes that the peer sent,
// which may be a secret.
type handshakeError struct{ error }

func (e handshakeError) Unwrap() error { return e.error }

// Error implements error.
func (e handshakeError) Error() string {
	header, isOther := errors.AsType[tls.RecordHeaderError](e.error)
	switch first := string(header.RecordHeader[:]); {
	case isOther && first == "HTTP/":
		return "tls handshake: the peer speaks HTTP without TLS"
	case isOther && strings.Trim(first, plainText) == "":
		return "tls handshake: the peer does not speak TLS but responds in plain text"
	case isOther:
		return "tls handshake: the peer does not speak TLS: " + header.Msg
	case errors.Is(e.error, io.EOF), errors.Is(e.error, io.ErrUnexpectedEOF):
		return "tls handshake: the peer closed the connection"
	}
	shown, isUnverified := errors.AsType[*tls.CertificateVerificationError](e.error)
	if invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](e.error); isUnverified && isInvalid && len(shown.UnverifiedCertificates) > 1 {
		return "tls handshake: " + nameCertificate(invalid.Cert, shown.UnverifiedCertificates) + ": " + e.error.Error()
	}
	return "tls handshake: " + e.error.Error()
}

// plainText are the characters that plain-text protocols begin with.
const plainText = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 +-*/.:<>$\r\n"

// isUnreadable reports whether a handshake failed because crypto/tls cannot use the server's certificate, regardless of who signed
// it. Those errors have no type.
func isUnreadable(err error) bool {
	text := err.Error()
	return strings.Contains(text, "failed to parse certificate from server") || strings.Contains(text, "server's certificate contains") ||
		strings.Contains(text, "server sent certificate containing RSA key")
}

// unreadableError is an error for which isUnreadable is true, of a handshake without verification.
type unreadableError struct{ error }

func (e unreadableError) Unwrap() error { return e.error }

// Error implements error.
func (e unreadableError) Error() string {
	_, problem, ok := strings.Cut(e.error.Error(), "failed to parse certificate from server: ")
	if !ok {
		problem = strings.TrimPrefix(e.error.Error(), "tls: ")
	}
	return "tls handshake: Go's TLS library cannot use the server's certificate, which does not count as a failure without verification: " + problem
}

// shownCertificates returns the certificates that the peer had sent when the handshake failed.
func shownCertificates(conn *tls.Conn, err error) []*x509.Certificate {
	if invalid, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return invalid.UnverifiedCertificates
	}
	return conn.ConnectionState().PeerCertificates
}

// CertificateExpiry returns when the first of the peer's certificates expires, in seconds since 1970; 0 without TLS.
func CertificateExpiry(conn net.Conn) int64 {
	if secure, ok := conn.(*tls.Conn); ok {
		return firstExpiry(secure.ConnectionState().PeerCertificates)
	}
	return 0
}

// tlsVersion returns the TLS version of a connection, as in package crypto/tls; 0 without TLS.
func tlsVersion(conn net.Conn) uint16 {
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.ConnectionState().Version
	}
	return 0
}

func firstExpiry(all []*x509.Certificate) int64 {
	if first := firstToExpire(all); first != nil {
		return first.NotAfter.Unix()
	}
	return 0
}

// firstToExpire returns the certificate that expires first; nil if there are none.
func firstToExpire(all []*x509.Certificate) (first *x509.Certificate) {
	for _, c := range all {
		if first == nil || c.NotAfter.Before(first.NotAfter) {
			first = c
		}
	}
	return first
}

// complete returns a configuration with a ServerName and, if it verifies, with trusted authorities.
func complete(config *tls.Config, host string) (*tls.Config, error) {
	verifies := config.RootCAs == nil && !config.InsecureSkipVerify
	if config.ServerName != "" && !verifies {
		return config, nil
	}
	config = config.Clone()
	if config.ServerName == "" {
		config.ServerName = ServerName(host)
	}
	var err error
	if verifies {
		config.RootCAs, err = systemAuthorities()
	}
	return config, err
}

// systemPool caches the system's authorities. Crypto/x509 itself reads them for handshakes only once: if it lacks a descriptor
// then, it never trusts any.
var systemPool struct {
	mu   sync.Mutex // guards pool
	pool *x509.CertPool
}

// systemAuthorities returns the system's authorities. An error is an x509.SystemRootsError.
func systemAuthorities() (*x509.CertPool, error) {
	systemPool.mu.Lock()
	defer systemPool.mu.Unlock()
	if systemPool.pool == nil {
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, x509.SystemRootsError{Err: err}
		}
		systemPool.pool = pool
	}
	return systemPool.pool, nil
}

// ServerName returns the name with which to verify a host's certificate: the host without the zone of an IPv6 address, which means
// nothing to the server.
func ServerName(host string) string {
	name, _, _ := strings.Cut(host, "%")
	return name
}

// maxCloseNotify is the maximum time for closing a TLS connection.
const maxCloseNotify = 10 * time.Millisecond

// Close closes a connection without delay. Closing a *tls.Conn sends a close_notify alert, which would block for up to five seconds
// if the peer does not read.
func Close(conn net.Conn) error {
	if secure, ok := conn.(*tls.Conn); ok {
		timer := time.AfterFunc(maxCloseNotify, func() { _ = secure.NetConn().Close() })
		defer timer.Stop()
	}
	return conn.Close()
}
