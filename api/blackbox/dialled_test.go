package blackbox_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sonde-probe/sonde/api/blackbox"
	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/engine"
)

// secretServer returns the address of a server on an address that no request may reach, and the number of its
// connections.
func secretServer(t *testing.T, address string) (string, *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	var connections atomic.Int64
	server := &httptest.Server{Listener: l, Config: &http.Server{
		Handler:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		ConnState: func(_ net.Conn, s http.ConnState) { connections.Add(int64(map[bool]int{true: 1}[s == http.StateNew])) },
	}}
	server.Start()
	t.Cleanup(server.Close)
	return l.Addr().String(), &connections
}

// A server that may be probed redirects to addresses that may not.
func TestARedirectLeadsOnlyToWhatIsAllowed(t *testing.T) {
	otherPort, portConns := secretServer(t, "127.0.0.1")
	otherHost, hostConns := secretServer(t, "127.0.0.2")
	_, secretPort, _ := net.SplitHostPort(otherPort)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
		}
	}))
	defer server.Close()
	own := server.Listener.Addr().(*net.TCPAddr).AddrPort()
	e := &fakeEngine{targets: map[string]engine.TargetStatus{
		"web":  {Address: "127.0.0.1", Ports: map[string]uint16{"http": own.Port()}},
		"both": {Address: "127.0.0.1", Ports: map[string]uint16{"http": own.Port(), "admin": netip.MustParseAddrPort(otherPort).Port()}},
	}}
	modules := map[string]blackbox.Module{
		"local": httpModule(t, httpprobe.Config{}, own.String()),
		"all":   httpModule(t, httpprobe.Config{Redirects: "all"}, own.String()),
		"kept":  httpModule(t, httpprobe.Config{Redirects: "all", ReuseConnection: true}, own.String()),
		"wide":  httpModule(t, httpprobe.Config{Redirects: "all", ReuseConnection: true}, own.String(), otherHost, otherPort),
		"any":   httpModule(t, httpprobe.Config{Redirects: "all"}, "*"),
		"name":  httpModule(t, httpprobe.Config{Redirects: "all"}, own.String(), "localhost"),
	}
	for _, name := range []string{"local", "all"} {
		m := modules[name]
		m.Port = "http"
		modules["web "+name] = m
	}
	s := serverOf(t, e, modules)
	for _, c := range []struct {
		module, target, to string
		refused            string // the refused address; "" for none
	}{
		{"local", own.String(), "/", ""},
		{"local", own.String(), "http://" + otherPort + "/", otherPort},
		{"all", own.String(), "http://" + otherPort + "/", otherPort},
		{"all", own.String(), "http://" + otherHost + "/", otherHost},
		{"all", own.String(), "http://[::ffff:127.0.0.2]:" + portNumber(otherHost) + "/", otherHost},
		{"all", own.String(), "http://localhost:" + secretPort + "/", otherPort},
		{"wide", own.String(), "http://" + otherHost + "/", ""},
		{"kept", own.String(), "http://" + otherHost + "/", otherHost},
		{"any", own.String(), "http://" + otherHost + "/", ""},
		{"name", own.String(), "http://localhost:" + secretPort + "/", ""},
		{"web local", "web", "/", ""},
		{"web local", "web", "http://" + otherPort + "/", otherPort},
		{"web all", "web", "http://" + otherHost + "/", otherHost},
		{"web all", "both", "http://" + otherPort + "/", ""},
	} {
		before := portConns.Load() + hostConns.Load()
		target := c.target
		if target == own.String() {
			target += "/?to=" + url.QueryEscape(c.to)
		} else {
			m := modules[c.module]
			m.Handler = httpModule(t, httpprobe.Config{Redirects: strings.TrimPrefix(c.module, "web "), Path: "/?to=" + url.QueryEscape(c.to)}).Handler
			use(t, s, map[string]blackbox.Module{c.module: m})
		}
		query := url.Values{"module": {c.module}, "target": {target}}.Encode()
		_, debug := ask(s, query+"&debug=true")
		status, body := ask(s, query)
		if c.refused == "" {
			if status != 200 || !strings.Contains(body, "\nprobe_success 1\n") {
				t.Errorf("%s of %s is redirected to %s: %d %s %s", c.target, c.module, c.to, status, body, debug)
			}
			continue
		}
		if status != 200 || !strings.Contains(body, "\nprobe_success 0\n") {
			t.Errorf("%s of %s is redirected to %s, which is not allowed: %d %s", c.target, c.module, c.to, status, body)
		}
		if !strings.Contains(debug, `reason="target.not_allowed"`) || !strings.Contains(debug, c.refused) || !strings.Contains(debug, "allow of probe_module") {
			t.Errorf("%s of %s is redirected to %s; the failure is %s", c.target, c.module, c.to, debug)
		}
		if got := portConns.Load() + hostConns.Load(); got != before {
			t.Errorf("%s of %s is redirected to %s, which is not allowed, and got %d connections", c.target, c.module, c.to, got-before)
		}
	}
}

func portNumber(address string) string {
	_, number, _ := net.SplitHostPort(address)
	return number
}

// An allowed name belongs to another host: whoever controls its DNS cannot make it lead to this machine or to link-local
// addresses, where clouds serve metadata.
func TestANameThatIsAllowedDoesNotLeadToThisMachine(t *testing.T) {
	for _, c := range []struct {
		allow, host, to string
		allowed         bool
	}{
		{"*.example.com", "a.example.com", "192.0.2.1:80", true},
		{"*.example.com", "a.example.com", "10.0.0.1:80", true},
		{"*.example.com", "a.example.com", "127.0.0.1:80", false},
		{"*.example.com", "a.example.com", "[::1]:80", false},
		{"*.example.com", "a.example.com", "[::ffff:127.0.0.1]:80", false},
		{"*.example.com", "a.example.com", "169.254.169.254:80", false},
		{"*.example.com", "a.example.com", "[fe80::1%1]:80", false},
		{"*.example.com", "a.example.com", "224.0.0.1:80", false},
		{"*.example.com:80", "a.example.com", "192.0.2.1:81", false},
		{"*.example.com:80", "A.example.com.", "192.0.2.1:80", true},
		{"*.example.com", "192.0.2.1", "192.0.2.1:80", false},
		{"192.0.2.0/24", "a.example.com", "192.0.2.1:80", true},
		{"127.0.0.0/8", "a.example.com", "127.0.0.1:80", true},
		{"::ffff:192.0.2.0/120", "a.example.com", "192.0.2.1:80", true},
		{"::ffff:192.0.2.0/120", "a.example.com", "192.0.3.1:80", false},
		{"localhost:80", "localhost", "127.0.0.1:80", true},
		{"*.localhost", "a.localhost", "[::1]:80", true},
		{"localhost", "localhost", "169.254.169.254:80", false},
		{"*", "a.example.com", "127.0.0.1:80", true},
		{"*:80", "127.0.0.1", "127.0.0.1:80", true},
		{"*:80", "127.0.0.1", "127.0.0.1:81", false},
	} {
		if got := blackbox.MayConnect(t, c.allow, c.host, netip.MustParseAddrPort(c.to)); got != c.allowed {
			t.Errorf("with allow %s, %s is at %s: allowed is %t", c.allow, c.host, c.to, got)
		}
	}
}
