package httpapi

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS configures HTTPS. The zero TLS is plain HTTP. The files are PEM, and New reads
// them once.
type TLS struct {
	CertFile     string // with the intermediate certificates
	KeyFile      string
	ClientCAFile string // clients need a certificate that one of these has signed; default: they need none
}

// load returns nil for plain HTTP.
func (t TLS) load() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	if t.CertFile == "" || t.KeyFile == "" {
		return nil, errors.New("tls: set both cert_file and key_file")
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("tls.cert_file and tls.key_file: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if t.ClientCAFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(t.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("tls.client_ca_file: %w", err)
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls.client_ca_file: no certificate in %s", t.ClientCAFile)
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	return c, nil
}
