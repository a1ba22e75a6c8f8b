package api

import (
	"crypto/tls"
	"errors"
	"strings"

	"github.com/sonde-probe/sonde/internal/dial"
)

// TLS configures HTTPS. The zero TLS means plain HTTP. The files are PEM; New reads them once.
type TLS struct {
	CertFile     string // includes the intermediate certificates
	KeyFile      string
	ClientCAFile string // clients need a certificate signed by one of these authorities; default: none is needed
}

// Load reads the files, and returns nil for plain HTTP. Its errors name the arguments of the tls block.
func (t TLS) Load() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	if t.CertFile == "" || t.KeyFile == "" {
		return nil, errors.New("tls: set both cert_file and key_file")
	}
	c, err := (&dial.TLS{CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.ClientCAFile}).Load()
	if err != nil {
		return nil, errors.New(strings.Replace(err.Error(), "tls.ca_file", "tls.client_ca_file", 1))
	}
	clients := c.RootCAs // those of ClientCAFile, or else the system's, which are not used
	if c.RootCAs = nil; t.ClientCAFile != "" {
		c.ClientCAs, c.ClientAuth = clients, tls.RequireAndVerifyClientCert
	}
	return c, nil
}
