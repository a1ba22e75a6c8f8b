package blackbox_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api/blackbox"
	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// fakeEngine has the targets and the health of an engine.
type fakeEngine struct {
	targets map[string]engine.TargetStatus
	health  engine.Health
}

func (f *fakeEngine) Target(name string) (engine.TargetStatus, bool) {
	t, ok := f.targets[name]
	return t, ok
}

func (f *fakeEngine) Health() engine.Health { return f.health }

const port = "request"

func httpModule(t testing.TB, c httpprobe.Config, allow ...string) blackbox.Module {
	t.Helper()
	c.Port = port
	h, err := httpprobe.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return blackbox.Module{Handler: h, HandlerName: "http", PortName: port, Allow: allow}
}

func tcpModule(t testing.TB, c tcpprobe.Config, allow ...string) blackbox.Module {
	t.Helper()
	c.Port = port
	h, err := tcpprobe.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return blackbox.Module{Handler: h, HandlerName: "tcp", PortName: port, Allow: allow}
}

// serverOf returns a Server with modules.
func serverOf(t testing.TB, e *fakeEngine, modules map[string]blackbox.Module) *blackbox.Server {
	t.Helper()
	s := blackbox.New(e)
	use(t, s, modules)
	return s
}

// use applies modules.
func use(t testing.TB, s *blackbox.Server, modules map[string]blackbox.Module) {
	t.Helper()
	commit, err := s.Plan(modules)
	if err != nil {
		t.Fatal(err)
	}
	commit()
}

// ask makes a request, and returns the status and body of the response. headers are alternating names and values.
func ask(s http.Handler, query string, headers ...string) (int, string) {
	r := httptest.NewRequest("GET", "/probe?"+query, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// saying is a handler with a fixed result, which records its target and its timeout.
type saying struct {
	result probe.Result
	target probe.Target
	left   time.Duration
}

func (s *saying) Probe(ctx context.Context, t probe.Target) probe.Result {
	s.target = t
	end, _ := ctx.Deadline()
	s.left = time.Until(end)
	return s.result
}

func TestOnlyWhatIsAllowedIsProbed(t *testing.T) {
	h := &saying{result: probe.Succeed("")}
	e := &fakeEngine{targets: map[string]engine.TargetStatus{
		"shop/web": {Address: "10.0.0.7", Ports: map[string]uint16{"http": 8080}},
		"worker":   {},
	}}
	s := serverOf(t, e, map[string]blackbox.Module{
		"none":  {Handler: h, HandlerName: "x", PortName: port},
		"port":  {Handler: h, HandlerName: "x", PortName: port, Port: "http"},
		"some":  {Handler: h, HandlerName: "x", PortName: port, Port: "53", Allow: []string{"*.Example.com:443", "10.1.0.0/16", "db", "[fd00::1]:5432", "192.0.2.1", "*.bücher.example"}},
		"all":   {Handler: h, HandlerName: "x", PortName: port, Allow: []string{"*"}},
		"local": {Handler: h, HandlerName: "x", PortName: port, Allow: []string{"127.0.0.0/8"}},
	})
	for _, c := range []struct {
		module, target string
		status         int
		want           string // host and port, or a part of the response
	}{
		{"none", "10.0.0.7:8080", 403, "not allowed"},
		{"port", "shop/web", 200, "10.0.0.7:8080"},
		{"none", "shop/web", 400, "has no port"},
		{"port", "worker", 400, "but target worker has no such port"},
		{"all", "worker:1", 200, "worker:1"},
		{"some", "a.example.com:443", 200, "a.example.com:443"},
		{"some", "A.EXAMPLE.COM.:443", 200, "A.EXAMPLE.COM.:443"},
		{"some", "a.example.com:80", 403, ""},
		{"some", "a.example.com", 403, ""},
		{"some", "example.com:443", 403, ""},
		{"some", "a.example.com.evil:443", 403, ""},
		{"some", "10.1.2.3", 200, "10.1.2.3:53"},
		{"some", "[::ffff:10.1.2.3]:9", 200, "[::ffff:10.1.2.3]:9"},
		{"some", "10.2.2.3", 403, ""},
		{"some", "db:9", 200, "db:9"},
		{"some", "fd00::1", 403, ""},
		{"some", "[fd00::1]:5432", 200, "[fd00::1]:5432"},
		{"some", "192.0.2.1:7", 200, "192.0.2.1:7"},
		{"some", "a.BÜCHER.example:9", 200, "a.xn--bcher-kva.example:9"},
		{"some", "a.xn--bcher-kva.example:9", 200, "a.xn--bcher-kva.example:9"},
		{"some", "bücher.example:9", 403, ""},
		{"local", "１２７.1.2.3:1", 200, "127.1.2.3:1"},
		{"none", "１０.1.2.3:1", 403, ""},
		{"all", "fd00::1", 400, "no port"},
		{"all", "[fd00::1]:1", 200, "[fd00::1]:1"},
		{"local", "localhost:1", 403, ""},
		{"local", "127.1.2.3:1", 200, "127.1.2.3:1"},
		{"all", "http://a:1", 400, "x takes no URL"},
		{"all", "a:1/path", 400, "x takes no URL"},
		{"all", "user@a:1", 400, "x takes no URL"},
		{"all", "0.0.0.0:1", 400, "not an address"},
		{"all", "a b:1", 400, "neither a URL nor a host"},
		{"all", "a:99999", 400, "must be from 1 to 65535"},
		{"all", "a:0", 400, "must be from 1 to 65535"},
		{"all", "ftp://a:1", 400, "must be http or https"},
		{"all", "", 400, "Target parameter is missing"},
		{"all", strings.Repeat("a", 3000), 400, "at most 2048"},
		{"other", "a:1", 400, `Unknown module "other"`},
	} {
		h.target = probe.Target{}
		status, body := ask(s, url.Values{"module": {c.module}, "target": {c.target}}.Encode())
		if c.status == 200 {
			body = net.JoinHostPort(h.target.Address, portOf(h.target))
		} else if h.target.Name != "" {
			t.Errorf("%s of %s was attempted", c.target, c.module)
		}
		if status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s of %s is %d %s, want %d %s", c.target, c.module, status, body, c.status, c.want)
		}
	}
}

func portOf(t probe.Target) string {
	text, _ := netip.AddrPortFrom(netip.IPv4Unspecified(), t.Ports[port]).MarshalText()
	return strings.TrimPrefix(string(text), "0.0.0.0:")
}

func TestPatternsOfHostsAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"*": "", "?.example.com": "", "10.0.0.0/8": "", "10.0.0.0/8:80": "", "::1": "", "[::1]": "", "[::1]:80": "", "fd00::/8": "", "db.": "", "a_b": "",
		"":               "must be a host name",
		"10.*":           "write a network",
		"300.1.1.1":      "four numbers",
		"http://a":       "from 1 to 65535",
		"a:http":         "from 1 to 65535",
		"a:0":            "from 1 to 65535",
		"a/b":            "must be a host name",
		"a b":            "must be a host name",
		"[::1":           "must be a host name",
		"::1]":           "must be a host name",
		"10.0.0.0/33":    "must be a host name",
		"-\x00":          "must be a host name",
		".example.com":   "must be a host name",
		"https://*:9999": "must be a host name",
	} {
		switch err := blackbox.CheckAllowed(text); {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := blackbox.New(&fakeEngine{}).Plan(map[string]blackbox.Module{"m": {Allow: []string{"a/b"}}}); err == nil {
		t.Error("a Server takes a wrong pattern")
	}
}

// A URL sets scheme, path and query; the configuration sets those that the URL lacks.
func TestTargetsOfHTTPAreURLs(t *testing.T) {
	var asked atomic.Pointer[string]
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		text := user + " " + password + " " + r.Host + " " + r.RequestURI
		asked.Store(&text)
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	host, number, _ := net.SplitHostPort(address)
	s := serverOf(t, &fakeEngine{targets: map[string]engine.TargetStatus{"web": {Address: host, Ports: map[string]uint16{"http": server.Listener.Addr().(*net.TCPAddr).AddrPort().Port()}}}},
		map[string]blackbox.Module{
			"http_2xx": httpModule(t, httpprobe.Config{}, "127.0.0.1"),
			"path":     httpModule(t, httpprobe.Config{Path: "/healthz?a=b"}, "127.0.0.1"),
			"port":     {Handler: httpModule(t, httpprobe.Config{}).Handler, HandlerName: "http", PortName: port, Port: "http"},
			"number":   {Handler: httpModule(t, httpprobe.Config{}).Handler, HandlerName: "http", PortName: port, Port: number, Allow: []string{"*"}},
		})
	for _, c := range []struct{ module, target, want string }{
		{"", address, "  " + address + " /"},
		{"", "http://" + address, "  " + address + " /"},
		{"", "http://" + address + "/a%2Fb?c=d", "  " + address + " /a%2Fb?c=d"},
		{"", "http://me:secret@" + address + "/", "me secret " + address + " /"},
		{"", address + "/a?c=d#e", "  " + address + " /a?c=d"},
		{"path", address, "  " + address + " /healthz?a=b"},
		{"path", address + "/other", "  " + address + " /other"},
		{"path", address + "?x", "  " + address + " /?x"},
		{"port", "web", "  127.0.0.1 /"},
		{"number", "http://127.0.0.1/x", "  127.0.0.1 /x"},
	} {
		status, body := ask(s, url.Values{"module": {c.module}, "target": {c.target}}.Encode())
		if got := *asked.Load(); status != 200 || !strings.Contains(body, "\nprobe_success 1\n") || got != c.want {
			t.Errorf("%s of %q: %d, the server was asked for %q, want %q: %s", c.target, c.module, status, got, c.want, body)
		}
	}
	if status, body := ask(s, "target="+address+"&hostname=other"); status != 400 || !strings.Contains(body, "hostname is not supported") {
		t.Errorf("the parameter hostname is %d %s", status, body)
	}
}

// The client chooses the server, but must not choose who gets the credentials of the module.
func TestCredentialsGoToThePortOfTheModuleOnly(t *testing.T) {
	own, other := httptest.NewServer(http.NotFoundHandler()), httptest.NewServer(http.NotFoundHandler())
	defer own.Close()
	defer other.Close()
	_, ownPort, _ := net.SplitHostPort(own.Listener.Addr().String())
	basic := &httpprobe.Basic{Username: "u", Password: "p"}
	module := func(c httpprobe.Config, allow ...string) blackbox.Module {
		m := httpModule(t, c, allow...)
		m.Port = ownPort
		return m
	}
	s := serverOf(t, &fakeEngine{}, map[string]blackbox.Module{
		"basic":  module(httpprobe.Config{BasicAuth: basic}, "127.0.0.1"),
		"user":   module(httpprobe.Config{Path: "//user:pw@x/p"}, "127.0.0.1"),
		"header": module(httpprobe.Config{Headers: map[string][]string{"X-Api-Key": {"k"}}}, "127.0.0.1"),
		"plain":  module(httpprobe.Config{Headers: map[string][]string{"Accept-Language": {"de"}}}, "127.0.0.1"),
		"port":   module(httpprobe.Config{BasicAuth: basic}, other.Listener.Addr().String()),
		"https":  module(httpprobe.Config{BasicAuth: basic, Scheme: "https"}, "127.0.0.1"),
	})
	for _, c := range []struct {
		module, target string
		status         int
		want           string
	}{
		{"basic", own.URL, 200, ""},
		{"basic", "127.0.0.1", 200, ""},
		{"basic", other.URL, 403, "credentials"},
		{"header", other.URL, 403, "credentials"},
		{"user", other.URL, 403, "credentials"},
		{"plain", other.URL, 200, ""},
		{"port", other.URL, 200, ""},
		{"https", own.URL, 403, "without TLS"},
		{"https", other.Listener.Addr().String(), 403, "credentials"},
		{"basic", "https://127.0.0.1", 200, ""}, // TLS is not a downgrade
	} {
		if status, body := ask(s, url.Values{"module": {c.module}, "target": {c.target}}.Encode()); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s of %s is %d %s, want %d %s", c.target, c.module, status, body, c.status, c.want)
		}
	}
}

func TestTheScrapeTimeoutBoundsAnAttempt(t *testing.T) {
	h := &saying{result: probe.Succeed("")}
	s := serverOf(t, &fakeEngine{}, map[string]blackbox.Module{
		"free": {Handler: h, PortName: port, Allow: []string{"*"}},
		"own":  {Handler: h, PortName: port, Allow: []string{"*"}, Timeout: 3 * time.Second},
	})
	const header = "X-Prometheus-Scrape-Timeout-Seconds"
	for _, c := range []struct {
		module, seconds string
		want            time.Duration // 0: the request is rejected
	}{
		{"free", "", 119500 * time.Millisecond},
		{"free", "0", 119500 * time.Millisecond},
		{"free", "10", 9500 * time.Millisecond},
		{"free", "0.4", 200 * time.Millisecond},
		{"free", "1e300", time.Hour - 500*time.Millisecond},
		{"free", "+Inf", time.Hour - 500*time.Millisecond},
		{"own", "10", 3 * time.Second},
		{"own", "2", 1500 * time.Millisecond},
		{"own", "", 3 * time.Second},
		{"free", "abc", 0},
		{"free", "NaN", 0},
		{"free", "-1", 0},
	} {
		h.left = 0
		status, body := ask(s, "target=a:1&module="+c.module, header, c.seconds)
		switch {
		case c.want == 0 && (status != 400 || !strings.Contains(body, header) || h.left != 0):
			t.Errorf("%q is %d %s", c.seconds, status, body)
		case c.want != 0 && (status != 200 || h.left > c.want || h.left <= 0):
			t.Errorf("with %q an attempt of %s may take %v, want %v at most: %d %s", c.seconds, c.module, h.left, c.want, status, body)
		}
	}
}

// A problem of this machine is not a failure of the target.
func TestAnAttemptThatCouldNotBeMadeIsAnError(t *testing.T) {
	h := &saying{}
	e := &fakeEngine{}
	s := serverOf(t, e, map[string]blackbox.Module{"m": {Handler: h, HandlerName: "x", PortName: port, Allow: []string{"*"}, Settings: "a = 1\nb = 2"}})
	for _, c := range []struct {
		result probe.Result
		health engine.Health
		target string
		status int
		want   string
	}{
		{probe.Succeed(""), engine.Health{}, "a:1", 200, "probe_success 1\n"},
		{probe.Warn(probe.ReasonHTTPRedirect, "moved"), engine.Health{}, "a:1", 200, "probe_success 1\n"},
		{probe.Fail(probe.ReasonTCPRefused, "no"), engine.Health{Isolated: true}, "a:1", 200, "probe_success 0\n"},
		{probe.Fail(probe.ReasonTCPTimeout, "no"), engine.Health{}, "a:1", 200, "probe_success 0\n"},
		{probe.Fail(probe.ReasonTCPTimeout, "no"), engine.Health{Isolated: true}, "10.0.0.1:1", 503, "isolated"},
		{probe.Fail(probe.ReasonDNSTimeout, "no"), engine.Health{NamesIsolated: true}, "a:1", 503, "isolated"},
		{probe.Fail(probe.ReasonTCPTimeout, "no"), engine.Health{NamesIsolated: true}, "10.0.0.1:1", 200, "probe_success 0\n"},
		{probe.Broken(probe.ReasonResources, "no descriptors"), engine.Health{}, "a:1", 503, "engine.resources: no descriptors"},
		{probe.Broken("plugin.trap", "unreachable"), engine.Health{}, "a:1", 500, "plugin.trap: unreachable"},
	} {
		h.result, e.health = c.result, c.health
		status, body := ask(s, "module=m&target="+c.target)
		if status != c.status || !strings.Contains(body, c.want) || status != 200 && strings.Contains(body, "probe_success") {
			t.Errorf("%+v is %d %s, want %d %s", c.result, status, body, c.status, c.want)
		}
		status, body = ask(s, "module=m&debug=true&target="+c.target)
		if status != c.status || !strings.Contains(body, "Logs for the probe:\nmodule=\"m\" target=") ||
			!strings.Contains(body, "Module configuration:\nx {\n  a = 1\n  b = 2\n}\n") || status == 200 && !strings.Contains(body, c.want) {
			t.Errorf("with debug=true %+v is %d %s", c.result, status, body)
		}
	}
	s.ShowsSettings = func(context.Context) bool { return false }
	h.result, e.health = probe.Succeed(""), engine.Health{}
	if _, body := ask(s, "module=m&debug=true&target=a:1"); strings.Contains(body, "a = 1") || !strings.Contains(body, "x {\n  # shown to clients with") {
		t.Errorf("a client without a token is shown %s", body)
	}
}

func TestAttemptsAtOnceAreBounded(t *testing.T) {
	begun, end := make(chan struct{}, blackbox.MaxAttempts+1), make(chan struct{})
	h := probe.HandlerFunc(func(ctx context.Context, _ probe.Target) probe.Result {
		begun <- struct{}{}
		select {
		case <-end:
		case <-ctx.Done():
		}
		return probe.Succeed("")
	})
	s := serverOf(t, &fakeEngine{}, map[string]blackbox.Module{"m": {Handler: h, PortName: port, Allow: []string{"*"}}})
	statuses := make(chan int, blackbox.MaxAttempts)
	for range blackbox.MaxAttempts {
		go func() {
			status, _ := ask(s, "module=m&target=a:1")
			statuses <- status
		}()
	}
	for range blackbox.MaxAttempts {
		testsync.Receive(t, "an attempt", begun)
	}
	if status, body := ask(s, "module=m&target=a:1"); status != 503 || !strings.Contains(body, "too many attempts") {
		t.Errorf("one attempt more is %d %s", status, body)
	}
	close(end)
	for range blackbox.MaxAttempts {
		if status := testsync.Receive(t, "a response", statuses); status != 200 {
			t.Errorf("an attempt within the bound is %d", status)
		}
	}
	if status, _ := ask(s, "module=m&target=a:1"); status != 200 {
		t.Errorf("an attempt afterwards is %d", status)
	}
}

// When a client disconnects, its attempt ends.
func TestTheEndOfARequestEndsItsAttempt(t *testing.T) {
	begun := make(chan struct{})
	ended := make(chan error, 1)
	h := probe.HandlerFunc(func(ctx context.Context, _ probe.Target) probe.Result {
		close(begun)
		<-ctx.Done()
		ended <- ctx.Err()
		return probe.Broken(probe.ReasonStopped, "cancelled")
	})
	s := serverOf(t, &fakeEngine{}, map[string]blackbox.Module{"m": {Handler: h, PortName: port, Allow: []string{"*"}}})
	server := httptest.NewServer(s)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "GET", server.URL+"/probe?module=m&target=a:1", nil)
	go func() {
		<-begun
		cancel()
	}()
	if _, err := http.DefaultClient.Do(r); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := testsync.Receive(t, "the end of the attempt", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("the attempt ended with %v", err)
	}
}

// Measurements of plugins have names of their own; those with the name of another metric are omitted.
func TestWhatPluginsMeasureIsShown(t *testing.T) {
	h := probe.HandlerFunc(func(ctx context.Context, _ probe.Target) probe.Result {
		probe.RecordTrace(ctx, func(t *probe.Trace) {
			t.Measured = map[string]float64{"queue_length": 7, "success": 0}
			t.TLS = &probe.TLSTrace{Version: "TLS 1.3", Subject: "a\"b\\c\nd\xff"}
		})
		return probe.Succeed("")
	})
	s := serverOf(t, &fakeEngine{}, map[string]blackbox.Module{"m": {Handler: h, HandlerName: "mine", PortName: port, Allow: []string{"*"}}})
	_, body := ask(s, "module=m&target=a:1")
	for _, want := range []string{
		"# HELP probe_queue_length Measured by the plugin\n# TYPE probe_queue_length gauge\nprobe_queue_length 7\n",
		"probe_success 1\n", `subject="a\"b\\c\nd` + "\uFFFD\"", `probe_tls_version_info{version="TLS 1.3"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is missing in\n%s", want, body)
		}
	}
	if strings.Count(body, "# TYPE probe_success ") != 1 {
		t.Errorf("there are several metrics probe_success:\n%s", body)
	}
}

// An unknown time is omitted: a number in its place would be long ago, and trigger alerts on early expiry.
func TestWhatIsNotKnownToExpireHasNoTime(t *testing.T) {
	no := false
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	measuring := func(name string) probe.Handler {
		return probe.HandlerFunc(func(ctx context.Context, _ probe.Target) probe.Result {
			probe.RecordTrace(ctx, func(t *probe.Trace) { t.Measured = map[string]float64{name: 1} })
			return probe.Succeed("")
		})
	}
	modules := map[string]blackbox.Module{
		"unverified": httpModule(t, httpprobe.Config{Scheme: "https", TLS: &httpprobe.TLS{Verify: &no}}, "127.0.0.1"),
		"grpc":       {Handler: measuring("grpc_serving_status"), HandlerName: "grpc", PortName: port, Allow: []string{"*"}},
		"without":    {Handler: measuring("x"), HandlerName: "mine", PortName: port, Allow: []string{"*"}},
	}
	for name, shown := range map[string]string{"unverified": "probe_ssl_earliest_cert_expiry", "grpc": "", "without": ""} {
		t.Run(name, func(t *testing.T) {
			_, body := ask(serverOf(t, &fakeEngine{}, modules), "module="+name+"&target="+url.QueryEscape(map[bool]string{true: s.URL, false: "a:1"}[shown != ""]))
			for _, metric := range []string{"probe_ssl_earliest_cert_expiry", "probe_ssl_last_chain_expiry_timestamp_seconds", "probe_http_last_modified_timestamp_seconds"} {
				if strings.Contains(body, "\n"+metric+" ") != (metric == shown) {
					t.Errorf("%s in\n%s", metric, body)
				}
			}
		})
	}
}

// A handler that keeps connections open has none after an attempt.
func TestATargetOfTCPIsProbed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, err = conn.Read(make([]byte, 1))
		ended <- err
	}()
	s := serverOf(t, &fakeEngine{}, map[string]blackbox.Module{"m": tcpModule(t, tcpprobe.Config{KeepAlive: &tcpprobe.KeepAlive{}}, "127.0.0.1")})
	status, body := ask(s, "module=m&target="+l.Addr().String())
	if status != 200 || !strings.Contains(body, "\nprobe_success 1\n") || !strings.Contains(body, "\nprobe_ip_protocol 4\n") {
		t.Errorf("%d %s", status, body)
	}
	if err := testsync.Receive(t, "the end of the connection", ended); !errors.Is(err, io.EOF) {
		t.Errorf("the connection ended with %v", err)
	}
}
