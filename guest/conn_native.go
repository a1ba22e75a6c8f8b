//go:build !wasip1

package guest

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
)

// Conn is a connection made by the host. It implements net.Conn and can be passed to libraries:
// while it waits for bytes, other goroutines run.
type Conn struct {
	net.Conn
	host string // the dialled host with its port
	gone bool   // closed or held
}

// Close closes the connection. After the first call, and after Hold, it does nothing.
func (c *Conn) Close() error {
	if c.gone {
		return nil
	}
	c.gone = true
	return c.Conn.Close()
}

// StartTLS performs a TLS handshake as the client. All bytes received before must have been read.
func (c *Conn) StartTLS(t TLS) error {
	if err := c.handshake(context.Background(), t); err != nil {
		return connError("tls", err)
	}
	return nil
}

func (c *Conn) handshake(ctx context.Context, t TLS) error {
	config, err := c.config(t)
	if err != nil {
		return err
	}
	secure := tls.Client(c.Conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return err
	}
	c.Conn = secure
	return nil
}

func (c *Conn) config(t TLS) (*tls.Config, error) {
	config := &tls.Config{ServerName: t.ServerName, NextProtos: t.ALPN, InsecureSkipVerify: t.Verify != nil && !*t.Verify}
	if t.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(c.host)
	}
	if t.CA != "" {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM([]byte(t.CA))
	}
	if t.Cert == "" {
		return config, nil
	}
	pair, err := tls.X509KeyPair([]byte(t.Cert), []byte(t.Key))
	config.Certificates = []tls.Certificate{pair}
	return config, err
}

// Info returns a property of the connection, or "".
func (c *Conn) Info(what Info) string {
	switch what {
	case InfoRemote:
		return c.RemoteAddr().String()
	case InfoLocal:
		return c.LocalAddr().String()
	}
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return ""
	}
	switch state := secure.ConnectionState(); what {
	case InfoALPN:
		return state.NegotiatedProtocol
	case InfoTLS:
		return tls.VersionName(state.Version)[len("TLS "):]
	case InfoCertificate:
		return certificateLines(state.PeerCertificates[0])
	}
	return ""
}

func certificateLines(c *x509.Certificate) string {
	b := appendLine(nil, "sha256", fmt.Sprintf("%x", sha256.Sum256(c.Raw)))
	b = appendLine(b, "not_before", fmt.Sprint(c.NotBefore.Unix()))
	b = appendLine(b, "not_after", fmt.Sprint(c.NotAfter.Unix()))
	b = appendLine(b, "subject", c.Subject.String())
	b = appendLine(b, "issuer", c.Issuer.String())
	for _, name := range c.DNSNames {
		b = appendLine(b, "dns", name)
	}
	return string(b)
}
