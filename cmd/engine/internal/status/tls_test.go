package status

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sonde-probe/sonde/internal/dial"
)

func TestAnEngineIsTrustedByItsCertificateAuthority(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		flags dial.TLS
		want  string // part of the error
	}{
		{dial.TLS{CAFile: authority}, ""},
		{dial.TLS{}, "certificate"},
	} {
		client, err := connection{tls: test.flags, set: pflag.NewFlagSet("", pflag.ContinueOnError)}.client()
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.HTTP.Get(server.URL)
		if err == nil {
			answer.Body.Close()
		}
		client.HTTP.CloseIdleConnections()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v gives the error %v, want %q", test.flags, err, test.want)
		}
	}
}

func TestErrorsNameTheFlagOfAnInvalidFile(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, d := range map[string]dial.TLS{
		"--ca-file cannot be read: open":                               {CAFile: empty + "x"},
		"--ca-file has no PEM block of type CERTIFICATE in " + empty:   {CAFile: empty},
		"--cert-file has no PEM block of type CERTIFICATE in " + empty: {CertFile: empty, KeyFile: empty},
	} {
		if _, err := (connection{tls: d, set: pflag.NewFlagSet("", pflag.ContinueOnError)}).client(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v gives the error %v, want %q", d, err, want)
		}
	}
}
