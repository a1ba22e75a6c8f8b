package httpprobe_test

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

// record serves one connection with status 200 and returns the received request: the request line and the headers, sorted.
func record(t *testing.T) (probe.Target, <-chan []string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	heads := make(chan []string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var head []string
		for lines := bufio.NewScanner(conn); lines.Scan() && lines.Text() != ""; {
			head = append(head, lines.Text())
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		slices.Sort(head[1:])
		heads <- head
	}()
	return targetOf(listener.Addr()), heads
}

func TestPathsAreParsedAsLinks(t *testing.T) {
	tests := map[string]string{ // path: request target
		"":                    "/",
		"/":                   "/",
		"x":                   "/x",
		"a%2Fb":               "/a%2Fb",
		"/a/b?c=d&e":          "/a/b?c=d&e",
		"?q=1":                "/?q=1",
		"/a#fragment":         "/a",
		"/a%2Fb":              "/a%2Fb",
		"/a b":                "/a%20b",
		"/%zz":                "/%25zz",
		"//foo/bar":           "/bar",
		"http://other/x":      "/x",
		"https://other:1/x?y": "/x?y",
		"a:b":                 "/a:b",
		"*":                   "/*",
		"/a*":                 "/a*",
		"/\x01":               "/%01",
		"/é":                  "/%C3%A9",
	}
	for path, want := range tests {
		t.Run(path, func(t *testing.T) {
			target, heads := record(t)
			got := attempt(t, httpprobe.Config{Port: "web", Path: path}, target, plenty)
			wantResult(t, got, probe.Success, "")
			if line := (<-heads)[0]; line != "GET "+want+" HTTP/1.1" {
				t.Errorf("got %q, want the target %q", line, want)
			}
		})
	}
}

func TestUserinfoInThePathBecomesBasicAuth(t *testing.T) {
	target, heads := record(t)
	attempt(t, httpprobe.Config{Port: "web", Path: "//user:pw@x/p"}, target, plenty)
	if got := strings.Join(<-heads, "\n"); !strings.Contains(got, "Authorization: Basic dXNlcjpwdw==") {
		t.Errorf("got the head\n%s", got)
	}
}

func TestHeadersAreTheKubelets(t *testing.T) {
	tests := map[string]struct {
		given map[string][]string
		want  []string // HOST stands for the target's address
	}{
		"a plain probe has the host and three headers": {
			nil,
			[]string{"Accept: */*", "Connection: close", "Host: HOST", "User-Agent: sonde-probe"},
		},
		"names are canonicalised and repeated values keep their order": {
			map[string][]string{"x-many": {"b", "a"}},
			[]string{"Accept: */*", "Connection: close", "Host: HOST", "User-Agent: sonde-probe", "X-Many: a", "X-Many: b"},
		},
		"a name in two spellings is one header": {
			map[string][]string{"x-a": {"2"}, "X-A": {"1"}},
			[]string{"Accept: */*", "Connection: close", "Host: HOST", "User-Agent: sonde-probe", "X-A: 1", "X-A: 2"},
		},
		"the defaults can be replaced": {
			map[string][]string{"user-agent": {"me"}, "accept": {"text/plain"}},
			[]string{"Accept: text/plain", "Connection: close", "Host: HOST", "User-Agent: me"},
		},
		"the defaults can be removed by an empty value": {
			map[string][]string{"User-Agent": {""}, "Accept": {""}},
			[]string{"Connection: close", "Host: HOST"},
		},
		"the defaults can be removed by no value": {
			map[string][]string{"User-Agent": {}, "Accept": {}},
			[]string{"Connection: close", "Host: HOST"},
		},
		"other headers may be empty": {
			map[string][]string{"X-Empty": {""}},
			[]string{"Accept: */*", "Connection: close", "Host: HOST", "User-Agent: sonde-probe", "X-Empty: "},
		},
		"the first host wins, in any spelling": {
			map[string][]string{"hOsT": {"shop.example", "other.example"}},
			[]string{"Accept: */*", "Connection: close", "Host: shop.example", "User-Agent: sonde-probe"},
		},
		"an empty host is the default": {
			map[string][]string{"Host": {""}},
			[]string{"Accept: */*", "Connection: close", "Host: HOST", "User-Agent: sonde-probe"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			target, heads := record(t)
			wantResult(t, attempt(t, httpprobe.Config{Port: "web", Headers: test.given}, target, plenty), probe.Success, "")
			host := (&net.TCPAddr{IP: net.ParseIP(target.Address), Port: int(target.Ports["web"])}).String()
			for i, line := range test.want {
				test.want[i] = strings.Replace(line, "HOST", host, 1)
			}
			if got := (<-heads)[1:]; !slices.Equal(got, test.want) {
				t.Errorf("got the headers %q, want %q", got, test.want)
			}
		})
	}
}

func TestMethodAndBodyAreSent(t *testing.T) {
	type request struct{ method, body, length string }
	got := make(chan request, 1)
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Method, string(body), r.Header.Get("Content-Length")}
	})
	wantResult(t, attempt(t, httpprobe.Config{Port: "web", Method: "post", Body: "hello"}, target, plenty), probe.Success, "")
	if got := <-got; got.method != "POST" || got.body != "hello" {
		t.Errorf("the server got %+v", got)
	}
}

func TestAHeadRequestHasNoBodyToWaitFor(t *testing.T) {
	target := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Length", "5000") })
	wantResult(t, attempt(t, httpprobe.Config{Port: "web", Method: "HEAD"}, target, plenty), probe.Success, "")
}

func TestAHandlerServesManyTargetsAtOnce(t *testing.T) {
	h := handler(t, httpprobe.Config{Port: "web", Headers: map[string][]string{"X-A": {"1"}}, Method: "POST", Body: "b"})
	targets := map[int]probe.Target{}
	for status := 200; status < 204; status++ {
		targets[status] = serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) })
	}
	results := make(chan probe.Result)
	for range 10 {
		for target := range maps.Values(targets) {
			go func() { results <- h.Probe(t.Context(), target) }()
		}
	}
	for range 40 {
		wantResult(t, <-results, probe.Success, "")
	}
}
