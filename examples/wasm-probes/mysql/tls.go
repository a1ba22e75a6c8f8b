package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"

	"github.com/sonde-probe/sonde/guest"
)

// tlsConfig returns the configuration of a TLS handshake in the plugin: this protocol starts TLS
// during the login, where the host cannot do it. The sandbox has no system certificate authorities.
func tlsConfig(t guest.TLS, host string) (*tls.Config, error) {
	config := &tls.Config{ServerName: t.ServerName}
	if config.ServerName == "" {
		config.ServerName = host
	}
	if t.Verify != nil && !*t.Verify {
		config.InsecureSkipVerify = true
	} else if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM([]byte(t.CA)) {
		return nil, &guest.FieldError{Field: "tls.ca_pem", Problem: "must hold certificates, unless verify is false"}
	}
	if t.Cert == "" && t.Key == "" {
		return config, nil
	}
	pair, err := tls.X509KeyPair([]byte(t.Cert), []byte(t.Key))
	if err != nil {
		return nil, &guest.FieldError{Field: "tls.cert_pem", Problem: "does not fit key_pem: " + err.Error()}
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// isUnreadable reports whether a handshake without verification failed because crypto/tls cannot use the server's
// certificate. These errors have no type.
func isUnreadable(t guest.TLS, err error) bool {
	text := err.Error()
	return t.Verify != nil && !*t.Verify && (strings.Contains(text, "failed to parse certificate from server") ||
		strings.Contains(text, "server's certificate contains") || strings.Contains(text, "server sent certificate containing RSA key"))
}

// tlsReason returns the reason of a handshake error, with the host's codes, or "".
func tlsReason(err error) string {
	var (
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		cert    *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		alert   tls.AlertError
	)
	switch {
	case errors.As(err, &name):
		return "tls.name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "tls.expired"
	case errors.As(err, &cert):
		return "tls.untrusted"
	case errors.As(err, &record), errors.As(err, &alert):
		return "tls.failed"
	}
	return ""
}
