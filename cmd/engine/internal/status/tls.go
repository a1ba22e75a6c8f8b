package status

import (
	"errors"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/internal/dial"
)

// tlsFlags are the flags of an HTTPS connection to an engine.
type tlsFlags dial.TLS

func (d *tlsFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&d.CAFile, "ca-file", "", "trust the certificate authorities in a PEM `file` instead of the system's")
	c.Flags().StringVar(&d.CertFile, "cert-file", "", "authenticate with a client certificate, a PEM `file`")
	c.Flags().StringVar(&d.KeyFile, "key-file", "", "key of the client certificate, a PEM `file`")
}

func (d *tlsFlags) client() (*http.Client, error) {
	if (d.CertFile == "") != (d.KeyFile == "") {
		return nil, cli.UsageError("--cert-file and --key-file must be given together")
	}
	c, err := (*dial.TLS)(d).Load()
	if err != nil {
		flags := strings.NewReplacer("tls.ca_file", "--ca-file", "tls.cert_file", "--cert-file", "tls.key_file", "--key-file")
		return nil, errors.New(flags.Replace(err.Error()))
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: c}}, nil
}
