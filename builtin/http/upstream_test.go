package httpprobe_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

// The tests in this file correspond to upstream's pkg/probe/http and its TestGetURLParts; tests/upstream.md compares them. Our
// results never contain the body, so requests are checked on the server's side.

// A process reads its proxy settings once, so the attempt is made in a separate process, for a name that only a proxy could
// resolve.
func TestUpstreamHTTPProbeProxy(t *testing.T) {
	const inside = "SONDE_TEST_PROXY"
	if os.Getenv(inside) != "" {
		got := attempt(t, httpprobe.Config{Port: "80", Host: "nowhere.invalid"}, probe.Target{}, plenty)
		if got.Outcome == probe.Success || !strings.HasPrefix(string(got.Reason), "dns.") { // unknown if no name server responds
			t.Errorf("got %+v, want that the name cannot be looked up", got)
		}
		return
	}
	proxy := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the proxy was asked for %s", r.URL) })
	at := "http://" + net.JoinHostPort(proxy.Address, strconv.Itoa(int(proxy.Ports["web"])))
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	again.Env = append(os.Environ(), inside+"=1", "http_proxy="+at, "HTTP_PROXY="+at, "no_proxy=", "NO_PROXY=")
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestUpstreamHTTPProbeCheckerSendsHeaders(t *testing.T) {
	type headers = map[string][]string
	plain := []string{"Accept", "Connection", "Host", "User-Agent"}
	for _, test := range []struct {
		name    string
		headers headers
		kubelet probe.Compatibility
		names   []string // all header names, including Host; nil: not checked
		sent    string   // a header line; empty: not checked
		unsent  string   // prefix that no line has; empty: not checked
	}{
		{name: "there are three", names: plain},
		{name: "their names", headers: headers{}, names: plain},
		{name: "Accept-Encoding gzip", headers: headers{"Accept-Encoding": {"gzip"}}, sent: "Accept-Encoding: gzip"},
		{name: "Accept-Encoding foo", headers: headers{"Accept-Encoding": {"foo"}}, sent: "Accept-Encoding: foo"},
		{name: "Accept-Encoding empty", headers: headers{"Accept-Encoding": {""}}, sent: "Accept-Encoding: "},
		{name: "one of its own", headers: headers{"X-Muffins-Or-Cupcakes": {"muffins"}}, sent: "X-Muffins-Or-Cupcakes: muffins"},
		{name: "User-Agent", headers: headers{"User-Agent": {"foo/1.0"}}, sent: "User-Agent: foo/1.0"},
		{name: "User-Agent empty", headers: headers{"User-Agent": {""}}, unsent: "User-Agent"},
		{name: "the default User-Agent", sent: "User-Agent: sonde-probe"},
		{name: "the kubelet's default User-Agent", kubelet: probe.Kubelet, sent: "User-Agent: kube-probe/1.36"},
		{name: "User-Agent empty, with compatibility", kubelet: probe.Kubelet, headers: headers{"User-Agent": {""}}, unsent: "User-Agent"},
		{name: "Accept beside User-Agent", headers: headers{"User-Agent": {"foo/1.0"}, "Accept": {"text/html"}}, sent: "Accept: text/html"},
		{name: "User-Agent beside Accept", headers: headers{"User-Agent": {"foo/1.0"}, "Accept": {"foo/*"}}, sent: "User-Agent: foo/1.0"},
		{name: "its own beside Accept", headers: headers{"X-Muffins-Or-Cupcakes": {"muffins"}, "Accept": {"foo/*"}}, sent: "X-Muffins-Or-Cupcakes: muffins"},
		{name: "Accept", headers: headers{"Accept": {"foo/*"}}, sent: "Accept: foo/*"},
		{name: "Accept empty", headers: headers{"Accept": {""}}, unsent: "Accept:"},
		{name: "Accept empty beside User-Agent", headers: headers{"User-Agent": {"foo/1.0"}, "Accept": {""}}, unsent: "Accept:"},
		{name: "the default Accept", sent: "Accept: */*"},
		{name: "Host", headers: headers{"Host": {"muffins.cupcakes.org"}}, sent: "Host: muffins.cupcakes.org"},
	} {
		t.Run(test.name, func(t *testing.T) {
			target, heads := record(t)
			wantResult(t, attempt(t, httpprobe.Config{Port: "web", Headers: test.headers, Compatibility: test.kubelet}, target, plenty), probe.Success, "")
			lines := (<-heads)[1:]
			if got := namesOf(lines); test.names != nil && !slices.Equal(got, test.names) {
				t.Errorf("the headers are %q, want %q", got, test.names)
			}
			if test.sent != "" && !slices.Contains(lines, test.sent) {
				t.Errorf("%q is not among %q", test.sent, lines)
			}
			if test.unsent != "" && slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, test.unsent) }) {
				t.Errorf("%q is among %q", test.unsent, lines)
			}
		})
	}
}

// namesOf returns the names of header lines.
func namesOf(lines []string) []string {
	var names []string
	for _, line := range lines {
		name, _, _ := strings.Cut(line, ":")
		names = append(names, name)
	}
	return names
}

func TestUpstreamHTTPProbeChecker(t *testing.T) {
	says := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	// leads redirects from / to /new, which then responds with then.
	leads := func(status int, then http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				http.Redirect(w, r, "/new", status)
				return
			}
			then(w, r)
		}
	}
	type testCase struct {
		name    string
		serve   http.HandlerFunc
		outcome probe.Outcome
		reason  probe.Reason
	}
	cases := []testCase{
		{"200 with a body", says(200, "ok body"), probe.Success, ""},
		{"500 with a body", says(500, "fail body"), probe.Failure, probe.ReasonHTTPStatus},
		{"redirected to a redirect without a body", leads(308, says(308, "")), probe.Warning, probe.ReasonHTTPRedirect},
		{"redirected to a redirect with a body", leads(308, says(308, "ok body")), probe.Warning, probe.ReasonHTTPRedirect},
	}
	for _, status := range []int{301, 302, 307, 308} {
		name := strconv.Itoa(status) + " to "
		cases = append(cases,
			testCase{name + "a good path", leads(status, says(200, "")), probe.Success, ""},
			testCase{name + "a bad path", leads(status, says(500, "")), probe.Failure, probe.ReasonHTTPStatus})
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			got := attempt(t, httpprobe.Config{Port: "web", Redirects: "all"}, serve(t, test.serve), plenty)
			wantResult(t, got, test.outcome, test.reason)
			if got.Outcome != probe.Failure && strings.Contains(got.Detail, "body") {
				t.Errorf("the detail tells the body: %q", got.Detail)
			}
		})
	}
	t.Run("status -1", func(t *testing.T) {
		target := serveRaw(t, func(conn *net.TCPConn) {
			skip(conn)
			io.WriteString(conn, "HTTP/1.1 -1 fail\r\nContent-Length: 9\r\n\r\nfail body")
		})
		wantResult(t, attempt(t, httpprobe.Config{Port: "web"}, target, plenty), probe.Failure, probe.ReasonHTTPProtocol)
	})
	t.Run("slower than the timeout", func(t *testing.T) {
		target := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		wantResult(t, attempt(t, httpprobe.Config{Port: "web"}, target, short), probe.Failure, probe.ReasonHTTPTimeout)
	})
}

func TestUpstreamHTTPProbeCheckerNonLocalRedirects(t *testing.T) {
	serving := func() probe.Target {
		return serve(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/redirect":
				http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
			case "/loop":
				http.Redirect(w, r, "/loop", http.StatusFound)
			case "/success":
			default:
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
	}
	target, other := serving(), serving()
	port := "http://" + net.JoinHostPort(other.Address, strconv.Itoa(int(other.Ports["web"])))
	for name, test := range map[string]struct {
		to         string
		local, all probe.Outcome // by the value of redirects
	}{
		"a good path":                {"/success", probe.Success, probe.Success},
		"a bad path":                 {"/fail", probe.Failure, probe.Failure},
		"another port's good path":   {port + "/success", probe.Success, probe.Success},
		"another port's bad path":    {port + "/fail", probe.Failure, probe.Failure},
		"a host that does not exist": {"http://0.0.0.0/fail", probe.Warning, probe.Failure},
		"itself":                     {"/loop", probe.Failure, probe.Failure},
	} {
		for redirects, want := range map[string]probe.Outcome{"local": test.local, "all": test.all} {
			t.Run(name+", "+redirects, func(t *testing.T) {
				c := httpprobe.Config{Port: "web", Path: "/redirect?to=" + test.to, Redirects: redirects}
				if got := attempt(t, c, target, plenty); got.Outcome != want {
					t.Errorf("got %+v, want %v", got, want)
				}
			})
		}
	}
}

func TestUpstreamHTTPProbeCheckerHostHeaderPreservedAfterRedirect(t *testing.T) {
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/redirect":
			http.Redirect(w, r, "/success", http.StatusFound)
		case r.Host != "www.success.com":
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	for host, want := range map[string]probe.Outcome{"www.success.com": probe.Success, "www.fail.com": probe.Failure} {
		for _, redirects := range []string{"local", "all"} {
			t.Run(host+", "+redirects, func(t *testing.T) {
				c := httpprobe.Config{Port: "web", Path: "/redirect", Redirects: redirects, Headers: map[string][]string{"Host": {host}}}
				if got := attempt(t, c, target, plenty); got.Outcome != want {
					t.Errorf("got %+v, want %v", got, want)
				}
			})
		}
	}
}

// A probe reads no more of a body than the limit. What it has read is visible because it expects a text at the limit.
func TestUpstreamHTTPProbeCheckerPayload(t *testing.T) {
	const end = "the end"
	for name, test := range map[string]struct {
		size    int
		outcome probe.Outcome // for a body that ends with the expected text
	}{
		"_PayloadNormal, a byte below the bound":    {probe.MaxDetail - 1, probe.Success},
		"as long as the bound":                      {probe.MaxDetail, probe.Success},
		"_PayloadTruncated, a byte above the bound": {probe.MaxDetail + 1, probe.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			body := strings.Repeat("a", test.size-len(end)) + end
			target := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Host != "www.success.com" {
					w.WriteHeader(http.StatusBadRequest)
				}
				io.WriteString(w, body)
			})
			c := httpprobe.Config{Port: "web", Path: "/success", Headers: map[string][]string{"Host": {"www.success.com"}}}
			wantResult(t, attempt(t, c, target, plenty), probe.Success, "")
			c.BodyContains, c.MaxBody = end, probe.MaxDetail
			if got := attempt(t, c, target, plenty); got.Outcome != test.outcome {
				t.Errorf("got %+v, want %v", got, test.outcome)
			}
		})
	}
}

func TestUpstreamFormatURL(t *testing.T) {
	for path, want := range map[string]string{"": "/", "/path": "/path", "?foo": "/?foo", "/path?bar": "/path?bar"} {
		t.Run(path, func(t *testing.T) {
			target, heads := record(t)
			port := strconv.Itoa(int(target.Ports["web"]))
			wantResult(t, attempt(t, httpprobe.Config{Host: "127.0.0.1", Port: port, Path: path}, probe.Target{}, plenty), probe.Success, "")
			head := <-heads
			if head[0] != "GET "+want+" HTTP/1.1" || !slices.Contains(head, "Host: 127.0.0.1:"+port) {
				t.Errorf("the server was asked %q, want %s", head, want)
			}
		})
	}
}

func TestUpstreamHeaderConversion(t *testing.T) {
	for name, test := range map[string]struct {
		given map[string][]string
		want  []string
	}{
		"unchanged":        {map[string][]string{"Accept": {"application/json"}}, []string{"Accept: application/json"}},
		"in small letters": {map[string][]string{"accept": {"application/json"}}, []string{"Accept: application/json"}},
		"in two spellings": {
			map[string][]string{"Accept": {"application/json"}, "accept": {"*/*"}, "pragma": {"no-cache"}, "X-forwarded-for": {"username"}},
			[]string{"Accept: */*", "Accept: application/json", "Pragma: no-cache", "X-Forwarded-For: username"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			target, heads := record(t)
			wantResult(t, attempt(t, httpprobe.Config{Port: "web", Headers: test.given}, target, plenty), probe.Success, "")
			got := slices.DeleteFunc((<-heads)[1:], func(line string) bool {
				return strings.HasPrefix(line, "Host:") || strings.HasPrefix(line, "Connection:") || strings.HasPrefix(line, "User-Agent:")
			})
			if !slices.Equal(got, test.want) {
				t.Errorf("got the headers %q, want %q", got, test.want)
			}
		})
	}
}

func TestUpstreamGetURLParts(t *testing.T) {
	found := serve(t, func(http.ResponseWriter, *http.Request) {})
	found.Ports = map[string]uint16{"found": found.Ports["web"]}
	number := strconv.Itoa(int(found.Ports["found"]))
	for _, test := range []struct {
		name   string
		config httpprobe.Config
		ok     bool
	}{
		{"a number below 1", httpprobe.Config{Port: "-1"}, false},
		{"no port", httpprobe.Config{}, false},
		{"a name that is not found", httpprobe.Config{Port: "not-found"}, false},
		{"a name that is found", httpprobe.Config{Port: "found"}, true},
		{"a number", httpprobe.Config{Port: number}, true},
		{"a host, a number and a path", httpprobe.Config{Host: "localhost", Port: number, Path: "path"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, err := httpprobe.New(test.config)
			if err == nil {
				err = h.(Handler).Check(found)
			}
			if (err == nil) != test.ok {
				t.Fatalf("the error is %v, want none: %v", err, test.ok)
			}
			if test.ok {
				wantResult(t, attempt(t, test.config, found, plenty), probe.Success, "")
			}
		})
	}
}
