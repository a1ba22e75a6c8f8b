package httpprobe_test

import (
	"crypto/tls"
	"net/http"
	"net/netip"
	"testing"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
)

func TestResultHasFacts(t *testing.T) {
	plain := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/from" {
			http.Redirect(w, r, "/to", http.StatusFound)
		}
	})
	no := false
	secure := serveTLS(t, serverConfig(dialtest.NewAuthority(t).Sign(t, 0, "127.0.0.1")), true)
	named := plain
	named.Address = "localhost"
	for name, c := range map[string]struct {
		config httpprobe.Config
		target probe.Target
		want   probe.Facts
	}{
		"an address": {httpprobe.Config{Port: "web"}, plain, probe.Facts{Protocol: "HTTP/1.1"}},
		"a redirect": {httpprobe.Config{Port: "web", Path: "/from"}, plain, probe.Facts{Protocol: "HTTP/1.1", Redirects: 1}},
		"a name":     {httpprobe.Config{Port: "web"}, named, probe.Facts{Protocol: "HTTP/1.1", Peer: netip.MustParseAddr("127.0.0.1")}},
		"TLS": {
			httpprobe.Config{Port: "web", Scheme: "https", TLS: &httpprobe.TLS{Verify: &no}, Status: []string{"100-599"}}, secure,
			probe.Facts{Protocol: "HTTP/2.0", TLS: tls.VersionTLS13},
		},
		"no server": {httpprobe.Config{Port: "1"}, plain, probe.Facts{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := attempt(t, c.config, c.target, plenty)
			if facts := got.Facts(); facts != c.want {
				t.Errorf("got %+v, want %+v: %+v", facts, c.want, got)
			}
		})
	}
}
