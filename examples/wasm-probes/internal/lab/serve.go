package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Serve serves on a port of 127.0.0.1 in this process and returns the port. The
// connections are closed when the test ends, or serve returns.
func Serve(t testing.TB, serve func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &serving{serve: serve}
	s.running.Go(func() { s.accept(l) })
	t.Cleanup(func() {
		l.Close()
		s.closeAll()
		s.running.Wait()
	})
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

type serving struct {
	serve   func(net.Conn)
	running sync.WaitGroup
	mu      sync.Mutex
	open    []net.Conn
	ended   bool
}

func (s *serving) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.open = append(s.open, c); s.ended {
			c.Close()
		}
		s.mu.Unlock()
		s.running.Go(func() {
			defer c.Close()
			s.serve(c)
		})
	}
}

func (s *serving) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, c := range s.open {
		c.Close()
	}
}

// Demo builds the demo service and starts it with the arguments.
func Demo(t testing.TB, args ...string) *Server {
	t.Helper()
	program := filepath.Join(t.TempDir(), "demo")
	if text, err := exec.Command("go", "build", "-o", program, "github.com/sonde-probe/sonde/examples/demo").CombinedOutput(); err != nil {
		t.Fatalf("go build examples/demo: %v\n%s", err, text)
	}
	return Start(t, &Server{Name: program, Args: args})
}

// Certificate returns a self-signed certificate of 127.0.0.1 for a server, and the same as
// PEM for a client that trusts it.
func Certificate(t testing.TB) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lab"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"lab.test"},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, asPEM("CERTIFICATE", raw)
}

// CertificateFiles writes a Certificate and its key to two files of an account, and
// returns their paths beside the certificate as PEM.
func CertificateFiles(t testing.TB, owner *syscall.Credential) (cert, key, authority string) {
	t.Helper()
	pair, authority := Certificate(t)
	raw, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := Dir(t, owner)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	File(t, owner, cert, authority)
	File(t, owner, key, asPEM("PRIVATE KEY", raw))
	return cert, key, authority
}

func asPEM(kind string, raw []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}))
}
