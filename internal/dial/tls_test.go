package dial_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
)

func TestErrorsOfATLSBlockNameTheField(t *testing.T) {
	ca := dialtest.NewAuthority(t)
	certFile, keyFile := dialtest.Files(t, ca.Sign(t, time.Hour, "client"))
	_, otherKey := dialtest.Files(t, ca.Sign(t, time.Hour, "other"))
	text := write(t, "no PEM at all")
	broken := write(t, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	large := write(t, strings.Repeat("x", 5<<20))
	no := false
	tests := map[string]struct {
		block dial.TLS
		field string
	}{
		"no such file":                 {dial.TLS{CAFile: "/nowhere"}, "tls.ca_file"},
		"a folder":                     {dial.TLS{CAFile: t.TempDir()}, "tls.ca_file"},
		"a file without PEM":           {dial.TLS{CAFile: text}, "tls.ca_file"},
		"a file that is too large":     {dial.TLS{CAFile: large}, "tls.ca_file"},
		"a key instead of authorities": {dial.TLS{CAFile: keyFile}, "tls.ca_file"},
		"a broken certificate":         {dial.TLS{CAFile: broken}, "tls.ca_file"},
		"authorities without use":      {dial.TLS{CAFile: ca.File, Verify: &no}, "tls.ca_file"},
		"a certificate without a key":  {dial.TLS{CertFile: certFile}, "tls.key_file"},
		"a key without a certificate":  {dial.TLS{KeyFile: keyFile}, "tls.cert_file"},
		"files the wrong way round":    {dial.TLS{CertFile: keyFile, KeyFile: certFile}, "tls.cert_file"},
		"no key in the key's file":     {dial.TLS{CertFile: certFile, KeyFile: certFile}, "tls.key_file"},
		"another certificate's key":    {dial.TLS{CertFile: certFile, KeyFile: otherKey}, "tls.key_file"},
		"a name that is none":          {dial.TLS{ServerName: "a b"}, "tls.server_name"},
		"a version that is none":       {dial.TLS{MinVersion: "1.4"}, "tls.min_version"},
		"a version of SSL":             {dial.TLS{MinVersion: "3.0"}, "tls.min_version"},
		"a validity below 0":           {dial.TLS{MinValidity: -1}, "tls.min_validity"},
		"a validity that is too long":  {dial.TLS{MinValidity: probe.MaxDuration + 1}, "tls.min_validity"},
		"an action that is none":       {dial.TLS{MinValidity: 1, OnShortValidity: "ignore"}, "tls.on_short_validity"},
		"an action without effect":     {dial.TLS{OnShortValidity: "warn"}, "tls.on_short_validity"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := test.block.Load()
			var wrong *probe.FieldError
			if !errors.As(err, &wrong) || wrong.Field != test.field {
				t.Errorf("got the error %v, want one for the field %s", err, test.field)
			}
		})
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestATLSBlockMakesAConfiguration(t *testing.T) {
	ca := dialtest.NewAuthority(t)
	certFile, keyFile := dialtest.Files(t, ca.Sign(t, time.Hour, "client"))
	for version, want := range map[string]uint16{
		"": tls.VersionTLS12, "1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13,
	} {
		block := &dial.TLS{CAFile: ca.File, CertFile: certFile, KeyFile: keyFile, ServerName: "shop", MinVersion: version}
		got, err := block.Load()
		if err != nil {
			t.Fatal(err)
		}
		if got.MinVersion != want || got.ServerName != "shop" || got.InsecureSkipVerify || got.RootCAs == nil || len(got.Certificates) != 1 {
			t.Errorf("with min_version %q got %+v", version, got)
		}
	}
}

func TestNoTLSBlockVerifies(t *testing.T) {
	got, err := (*dial.TLS)(nil).Load()
	if err != nil || got.InsecureSkipVerify || got.MinVersion != tls.VersionTLS12 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAZoneIsNotPartOfTheServersName(t *testing.T) {
	ca := dialtest.NewAuthority(t)
	config, err := (&dial.TLS{CAFile: ca.File}).Load()
	if err != nil {
		t.Fatal(err)
	}
	client, server := net.Pipe()
	defer server.Close()
	done := make(chan error, 1)
	go func() {
		config := &tls.Config{Certificates: []tls.Certificate{ca.Sign(t, time.Hour, "fe80::1")}}
		done <- tls.Server(server, config).HandshakeContext(t.Context())
	}()
	var took probe.Timings
	conn, err := dial.Handshake(t.Context(), client, config, "fe80::1%eth0", &took)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	client.Close()
	if conn.ConnectionState().PeerCertificates == nil || took.TLS <= 0 {
		t.Errorf("got the timings %+v", took)
	}
}

func TestAHandshakeThatIsCancelledClosesTheConnection(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	config, err := (*dial.TLS)(nil).Load()
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := server.Read(make([]byte, 1<<12))
		cancel()
		for err == nil {
			_, err = server.Read(make([]byte, 1<<12))
		}
		read <- err
	}()
	_, err = dial.Handshake(ctx, client, config, "shop", new(probe.Timings))
	if got := dial.Result(err); got.Reason != probe.ReasonStopped || got.Outcome != probe.Unknown {
		t.Errorf("got %+v", got)
	}
	if <-read == nil {
		t.Error("the connection is still open")
	}
}

// The error describes what the peer does instead of a handshake, and shows no data that the peer sends.
func TestAHandshakeThatFailsSaysWhatThePeerDoes(t *testing.T) {
	for name, c := range map[string]struct{ answer, want string }{
		"HTTP":           {"HTTP/1.1 400 Bad Request\r\n\r\ngeheim", "tls handshake: the peer speaks HTTP without TLS"},
		"SSH":            {"SSH-2.0-geheim\r\n", "tls handshake: the peer does not speak TLS but responds in plain text"},
		"SMTP":           {"220 geheim ESMTP\r\n", "tls handshake: the peer does not speak TLS but responds in plain text"},
		"binary":         {"\x00\x01\x02geheim geheim", "tls handshake: the peer does not speak TLS: first record does not look like a TLS handshake"},
		"nothing":        {"", "tls handshake: the peer closed the connection"},
		"half a record":  {"\x16\x03\x03\x00\x40half", "tls handshake: the peer closed the connection"},
		"an alert":       {"\x15\x03\x03\x00\x02\x02\x28", "tls handshake: remote error: tls: handshake failure"},
		"another record": {"\x17\x03\x03\x00\x01x", "tls handshake: "},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			go func() {
				_, _ = theirs.Read(make([]byte, 4096))
				_, _ = theirs.Write([]byte(c.answer))
				_ = theirs.Close()
			}()
			var took probe.Timings
			_, err := dial.Handshake(t.Context(), ours, &tls.Config{ServerName: "db", RootCAs: dialtest.NewAuthority(t).Pool()}, "db", &took)
			known, ok := errors.AsType[*dial.Error](err)
			if !ok || known.Outcome != probe.Failure || known.Reason != probe.ReasonTLSFailed || !strings.HasPrefix(known.Error(), c.want) || strings.Contains(known.Error(), "geheim") {
				t.Errorf("got %+v, want %s", err, c.want)
			}
		})
	}
}

// Verify = false means that the certificate does not matter: if Go cannot use it, that is not a failure of the server.
func TestACertificateThatGoCannotReadIsOurFaultWithoutVerification(t *testing.T) {
	t.Setenv("GODEBUG", "x509negativeserial=1") // as in cmd/engine
	ca := dialtest.NewAuthority(t)
	good := ca.Sign(t, time.Hour, "shop.example")
	no := false
	for name, c := range map[string]struct {
		block *dial.TLS
		shown tls.Certificate
		want  probe.Outcome
	}{
		"of an appliance":          {&dial.TLS{Verify: &no}, dialtest.WithNegativeSerial(t, good), probe.Success},
		"malformed":                {&dial.TLS{Verify: &no}, dialtest.WithMalformedName(t, good), probe.Unknown},
		"too large a key":          {&dial.TLS{Verify: &no}, ca.WithLargeKey(t, good), probe.Unknown},
		"malformed, and verified":  {&dial.TLS{CAFile: ca.File}, dialtest.WithMalformedName(t, good), probe.Failure},
		"appliance, and verified":  {&dial.TLS{CAFile: ca.File}, dialtest.WithNegativeSerial(t, good), probe.Failure},
		"good, without its issuer": {&dial.TLS{Verify: &no}, good, probe.Success},
	} {
		config, err := c.block.Load()
		if err != nil {
			t.Fatal(err)
		}
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{c.shown}})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if server, err := l.Accept(); err == nil {
				_, _ = server.Read(make([]byte, 1)) // the client reports the result of the handshake
				_ = server.Close()
			}
		}()
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		got := probe.Succeed("")
		conn, err := dial.Handshake(t.Context(), client, config, "shop.example", new(probe.Timings))
		if err != nil {
			got = dial.Result(err)
		} else {
			_ = conn.NetConn().Close()
		}
		_ = l.Close()
		<-done
		said := strings.Contains(got.Detail, "Go's TLS library cannot use the server's certificate")
		if got.Outcome != c.want || said != (c.want == probe.Unknown) {
			t.Errorf("%s: got %v %s", name, got.Outcome, got.Detail)
		}
	}
}
