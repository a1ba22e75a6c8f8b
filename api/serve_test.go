package api_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
)

func record(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// client serves h until the test ends, and returns a Client for it.
func client(t *testing.T, h http.Handler) *api.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.CloseClientConnections)
	t.Cleanup(s.Close)
	return &api.Client{Base: s.URL, HTTP: s.Client()}
}

// serve runs s on its own port. The returned function stops it and returns the result of Serve.
func serve(t *testing.T, s *api.Server) (address string, end func() error) {
	t.Helper()
	l, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	return l.Addr().String(), func() error { cancel(); return <-served }
}

func TestServeEndsStreamsAndReturnsWhenItsContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, end := servePipes(t, api.Config{Engine: engine.New(engine.Config{})})
		answer, err := http.ReadResponse(bufio.NewReader(p.open(t, rawRequest("/v1/events"))), nil)
		if err != nil {
			t.Fatal(err)
		}
		began, read := time.Now(), make(chan error, 1)
		go func() { _, err := io.ReadAll(answer.Body); read <- err }()
		end()
		if took := time.Since(began); took >= api.ShutdownGrace {
			t.Errorf("it took %v to end a stream", took)
		}
		if err := <-read; err != nil {
			t.Errorf("the stream broke off: %v", err)
		}
		if _, err := p.Dial(t.Context(), "", ""); err == nil {
			t.Error("the listener is still open")
		}
	})
}

func TestServeRejectsAListenerThatIsOpenToOthers(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	err = server(t, api.Config{}).Serve(t.Context(), l)
	if err == nil || !strings.Contains(err.Error(), "without authentication") {
		t.Errorf("Serve returned %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is not closed: %v", err)
	}
}

func TestServeReturnsTheListenersError(t *testing.T) {
	s := server(t, api.Config{Listen: "127.0.0.1:0"})
	l, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := s.Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve returned %v", err)
	}
}

func TestPortInUseIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = server(t, api.Config{Listen: l.Addr().String()}).Listen(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "listen on "+l.Addr().String()) {
		t.Errorf("Listen returned %v", err)
	}
}

func TestTooLongHeadersAreRejected(t *testing.T) {
	address, _ := serve(t, server(t, api.Config{Listen: "127.0.0.1:0"}))
	r, err := http.NewRequest(http.MethodGet, "http://"+address+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Long", strings.Repeat("a", 4*api.MaxHeaderBytes))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", answer.StatusCode)
	}
}

func TestOnlyClientsWithACertificateAreServed(t *testing.T) {
	files, pair, roots := certificates(t)
	address, _ := serve(t, server(t, api.Config{Listen: "127.0.0.1:0", TLS: files, Engine: engine.New(engine.Config{})}))
	get := func(c *tls.Config) (*http.Response, error) {
		transport := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		return (&http.Client{Transport: transport}).Get("https://" + address + "/v1/targets")
	}
	if answer, err := get(&tls.Config{RootCAs: roots}); err == nil {
		answer.Body.Close()
		t.Errorf("without a certificate: status %d", answer.StatusCode)
	}
	answer, err := get(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != 200 || answer.ProtoMajor != 2 {
		t.Errorf("with a certificate: status %d over %s", answer.StatusCode, answer.Proto)
	}
}

// certificates makes a self-signed certificate for 127.0.0.1, which clients may present as well.
func certificates(t *testing.T) (api.TLS, tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sonde"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	pair, err := tls.X509KeyPair(cert, private)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	if err := errors.Join(os.WriteFile(certFile, cert, 0o600), os.WriteFile(keyFile, private, 0o600)); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return api.TLS{CertFile: certFile, KeyFile: keyFile, ClientCAFile: certFile}, pair, roots
}
