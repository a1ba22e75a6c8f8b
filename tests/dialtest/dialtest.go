// Package dialtest creates certificates and errors for the tests of the built-in handlers.
package dialtest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates. File is the PEM file with which to trust it.
type Authority struct {
	File string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	sent [][]byte // certificates that are sent together with those that it signs
}

// NewAuthority creates an authority that is trusted only by its File.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	key := newKey(t)
	cert := template("test authority", time.Hour)
	return newAuthority(t, cert, cert, key, key)
}

// Intermediate creates an authority that a has signed and that expires after validFor, which may be negative. Certificates that it
// signs are sent together with its own.
func (a *Authority) Intermediate(t testing.TB, name string, validFor time.Duration) *Authority {
	t.Helper()
	made := newAuthority(t, template(name, validFor), a.cert, newKey(t), a.key)
	made.sent = [][]byte{made.cert.Raw}
	return made
}

func newAuthority(t testing.TB, cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) *Authority {
	t.Helper()
	cert.IsCA, cert.BasicConstraintsValid, cert.KeyUsage = true, true, x509.KeyUsageCertSign
	der := sign(t, cert, parent, key, parentKey)
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{File: write(t, "ca.pem", "CERTIFICATE", der), cert: parsed, key: key}
}

// Sign creates a certificate for host names and IP addresses that expires after validFor, which may be negative.
func (a *Authority) Sign(t testing.TB, validFor time.Duration, hosts ...string) tls.Certificate {
	t.Helper()
	key := newKey(t)
	cert := template(hosts[0], validFor)
	cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, host)
		}
	}
	signed := sign(t, cert, a.cert, key, a.key)
	leaf, err := x509.ParseCertificate(signed)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: append([][]byte{signed}, a.sent...), PrivateKey: key, Leaf: leaf}
}

// WithNegativeSerial returns a certificate with a negative serial number, as appliances have it. Its signature is invalid.
func WithNegativeSerial(t testing.TB, c tls.Certificate) tls.Certificate {
	number := c.Leaf.SerialNumber.Bytes()
	return changed(t, c, number, append([]byte{number[0] | 0x80}, number[1:]...))
}

// WithMalformedName returns a certificate with a host name that is not ASCII. Its signature is invalid.
func WithMalformedName(t testing.TB, c tls.Certificate) tls.Certificate {
	name := []byte(c.Leaf.DNSNames[0])
	return changed(t, c, append([]byte{0x82, byte(len(name))}, name...), append([]byte{0x82, byte(len(name)), 0xe4}, name[1:]...))
}

// WithLargeKey returns a certificate that declares a larger RSA key than crypto/tls accepts. The server's key is another one.
func (a *Authority) WithLargeKey(t testing.TB, c tls.Certificate) tls.Certificate {
	t.Helper()
	n := new(big.Int).Lsh(big.NewInt(1), 8200)
	public := &rsa.PublicKey{N: n.Add(n, big.NewInt(1)), E: 65537}
	der, err := x509.CreateCertificate(rand.Reader, c.Leaf, a.cert, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	c.Certificate = [][]byte{der}
	return c
}

// changed returns a certificate in which bytes are replaced by others of the same length.
func changed(t testing.TB, c tls.Certificate, from, to []byte) tls.Certificate {
	t.Helper()
	der := bytes.Replace(c.Certificate[0], from, to, 1)
	if bytes.Equal(der, c.Certificate[0]) {
		t.Fatal("the certificate is not changed")
	}
	c.Certificate = [][]byte{der}
	return c
}

// Files writes a certificate and its key as PEM files.
func Files(t testing.TB, c tls.Certificate) (certFile, keyFile string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "cert.pem", "CERTIFICATE", c.Certificate[0]), write(t, "key.pem", "PRIVATE KEY", der)
}

// Pool returns a pool with the authority, for servers that request client certificates.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func template(name string, validFor time.Duration) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-24 * time.Hour),
		NotAfter:     time.Now().Add(validFor),
	}
}

func sign(t testing.TB, cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func write(t testing.TB, name, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
