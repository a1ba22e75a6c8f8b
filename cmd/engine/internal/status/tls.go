package status

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
)

// tlsFlags are the flags of an HTTPS connection to an engine.
type tlsFlags struct {
	caFile, certFile, keyFile string
}

func (d *tlsFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&d.caFile, "ca-file", "", "trust the certificate authorities in a PEM `file` instead of the system's")
	c.Flags().StringVar(&d.certFile, "cert-file", "", "authenticate with a client certificate, a PEM `file`")
	c.Flags().StringVar(&d.keyFile, "key-file", "", "key of the client certificate, a PEM `file`")
}

func (d *tlsFlags) client() (*http.Client, error) {
	if (d.certFile == "") != (d.keyFile == "") {
		return nil, cli.UsageError("--cert-file and --key-file must be given together")
	}
	c := &tls.Config{}
	if d.caFile != "" {
		pem, err := os.ReadFile(d.caFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca-file: %s has no certificate", d.caFile)
		}
	}
	if d.certFile != "" {
		pair, err := tls.LoadX509KeyPair(d.certFile, d.keyFile)
		if err != nil {
			return nil, fmt.Errorf("--cert-file and --key-file: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: c}}, nil
}
