package gatewaytest

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// Output is a running output.
type Output struct {
	Gateways *gateway.Gateways
	URL      string // of its listener; empty if it has none
	Log      *testsync.Buffer
}

// Serve runs an output for the group of a scene until the test ends, and waits until it listens.
func (s *Scene) Serve(make func() gateway.Output) *Output {
	s.t.Helper()
	o := s.RunOutput(make)
	testsync.Until(s.t, "the listener", func() bool {
		address := o.Gateways.Statuses()[0].Address
		o.URL = "http://" + address
		return address != ""
	})
	return o
}

// RunOutput is like Serve for an output that may not listen.
func (s *Scene) RunOutput(make func() gateway.Output) *Output {
	s.t.Helper()
	o := &Output{Log: &testsync.Buffer{}}
	o.Gateways = gateway.New(gateway.Config{Groups: s.Groups, Logger: slog.New(slog.NewTextHandler(o.Log, nil))})
	if err := o.Gateways.Apply(map[string]gateway.Spec{"edge": {Output: "test", Groups: []string{"web"}, New: make}}); err != nil {
		s.t.Fatal(err)
	}
	Run(s.t, o.Gateways)
	return o
}

// Get sends a request, and returns the status and the body of the response, without surrounding white space. Headers are written
// "Name: value"; Host is one of them.
func Get(t testing.TB, url string, headers ...string) (status int, body string) {
	t.Helper()
	return Do(t, http.MethodGet, url, "", headers...)
}

// Do is like Get with another method, and with a body.
func Do(t testing.TB, method, url, body string, headers ...string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(text))
}
