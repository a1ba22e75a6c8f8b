//go:build !wasip1

package guest

import (
	"context"
	"crypto/tls"
	"net/http/httptest"
	"strings"
	"testing"
)

// The protocols of the TLS settings are offered unless the plugin passes others.
func TestDialPortOffersTheProtocolsOfItsTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.TLS = &tls.Config{NextProtos: []string{"first", "second"}}
	server.StartTLS()
	defer server.Close()
	type none struct{}
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	for want, alpn := range map[string][]string{"second": nil, "first": {"first"}} {
		verify := false
		attempt := func(ctx context.Context, t Target[none]) Result {
			c, err := t.DialPort(ctx, "tcp", port, &TLS{Verify: &verify, ALPN: []string{"second"}}, alpn...)
			if err != nil {
				return FailWith("dial.tls", err)
			}
			defer c.Close()
			return Succeed(c.Info(InfoALPN))
		}
		trial, err := NewTrial(attempt, "127.0.0.1", "{}")
		if err != nil {
			t.Fatal(err)
		}
		if r := trial.Attempt(t.Context()); r != Succeed(want) {
			t.Errorf("with %v: got %+v, want %s", alpn, r, want)
		}
		trial.Close()
	}
}
