package httpprobe_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// forwarder is a proxy that knows one name, shop.example. If private is set, it requires the credentials me and secret.
type forwarder struct {
	to      string // the address of shop.example
	private bool

	mu    sync.Mutex
	asked []string // "GET http://…" or "CONNECT …"
}

func (f *forwarder) note(request string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, request)
}

func (f *forwarder) requests() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.asked, "\n")
}

// dial connects to a host, like a proxy that resolves names.
func (f *forwarder) dial(host string) (net.Conn, error) {
	name, port, _ := net.SplitHostPort(host)
	if name == "shop.example" {
		host = f.to
	}
	if port == "9" {
		return nil, errors.New("port 9 is closed")
	}
	return net.Dial("tcp", host)
}

func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.note(r.Method + " " + r.RequestURI)
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:secret"))
	if f.private && r.Header.Get("Proxy-Authorization") != want {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect {
		f.forward(w, r)
		return
	}
	if strings.HasPrefix(r.RequestURI, "denied.example") {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	server, err := f.dial(r.RequestURI)
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
	join(client, server)
}

func (f *forwarder) forward(w http.ResponseWriter, r *http.Request) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, _, host string) (net.Conn, error) { return f.dial(host) }}
	r.Header.Del("Proxy-Authorization")
	response, err := transport.RoundTrip(r)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer response.Body.Close()
	w.WriteHeader(response.StatusCode)
	io.Copy(w, response.Body)
}

// join relays bytes between two connections until one of them ends.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			io.Copy(pair[0], pair[1])
			pair[0].Close()
			pair[1].Close()
		})
	}
	both.Wait()
}

// serveSocks serves SOCKS 5 (RFC 1928, with user and password of RFC 1929 if the forwarder is private).
func (f *forwarder) serveSocks(t *testing.T) string {
	return listenRaw(t, func(conn net.Conn) {
		head := make([]byte, 3)
		io.ReadFull(conn, head)
		if f.private {
			conn.Write([]byte{5, 2})
			login := make([]byte, 11)
			io.ReadFull(conn, login)
			if !bytes.Equal(login, []byte("\x01\x02me\x06secret")) {
				conn.Write([]byte{1, 1})
				return
			}
			conn.Write([]byte{1, 0})
		} else {
			conn.Write([]byte{5, 0})
		}
		request := make([]byte, 5)
		io.ReadFull(conn, request)
		var host string
		rest := make([]byte, 2)
		switch request[3] {
		case 3:
			rest = make([]byte, int(request[4])+2)
			io.ReadFull(conn, rest)
			host = string(rest[:request[4]])
		case 1:
			rest = make([]byte, 5)
			io.ReadFull(conn, rest)
			host = netip.AddrFrom4([4]byte{request[4], rest[0], rest[1], rest[2]}).String()
		}
		end := rest[len(rest)-2:]
		port := int(end[0])<<8 | int(end[1])
		f.note("SOCKS " + net.JoinHostPort(host, strconv.Itoa(port)))
		codes := map[string]byte{"refused.example": 5, "unreachable.example": 4, "denied.example": 2}
		if code := codes[host]; code != 0 {
			conn.Write([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0})
			return
		}
		server, err := f.dial(net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			conn.Write([]byte{5, 1, 0, 1, 0, 0, 0, 0, 0, 0})
			return
		}
		conn.Write([]byte("\x05\x00\x00\x03\x04here\x00\x50"))
		join(conn, server)
	})
}

// listenRaw serves connections, and returns the address of the server.
func listenRaw(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		conns.Wait()
	})
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	return listener.Addr().String()
}

func TestAttemptsAreMadeThroughAProxy(t *testing.T) {
	authority := dialtest.NewAuthority(t)
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/healthz?a=b" || !strings.HasPrefix(r.Host, "shop.example:") || r.Header.Get("Proxy-Authorization") != "" {
			t.Errorf("the target got %s of %s with %v", r.URL, r.Host, r.Header)
		}
		io.WriteString(w, "fine")
	})
	plain := httptest.NewServer(answer)
	defer plain.Close()
	secure := httptest.NewUnstartedServer(answer)
	secure.TLS = serverConfig(authority.Sign(t, 90*time.Minute, "shop.example"))
	secure.StartTLS()
	defer secure.Close()
	for _, private := range []bool{false, true} {
		for _, scheme := range []string{"http", "https", "socks5"} {
			for _, https := range []bool{false, true} {
				f := &forwarder{to: plain.Listener.Addr().String(), private: private}
				c := httpprobe.Config{Host: "shop.example", Path: "/healthz?a=b", BodyContains: "fine", Proxy: &httpprobe.Proxy{}}
				want := "GET http://shop.example:"
				if https {
					f.to = secure.Listener.Addr().String()
					c.Scheme, c.TLS, want = "https", &httpprobe.TLS{CAFile: authority.File}, "CONNECT shop.example:"
				}
				_, c.Port, _ = net.SplitHostPort(f.to)
				if private {
					c.Proxy.User, c.Proxy.Password = "me", "secret"
				}
				switch scheme {
				case "http":
					server := httptest.NewServer(f)
					defer server.Close()
					c.Proxy.URL = server.URL
				case "https":
					server := httptest.NewUnstartedServer(f)
					server.TLS = serverConfig(authority.Sign(t, time.Minute, "127.0.0.1"))
					server.StartTLS()
					defer server.Close()
					c.Proxy.URL, c.Proxy.CAFile = server.URL, authority.File
				case "socks5":
					c.Proxy.URL, want = "socks5://"+f.serveSocks(t), "SOCKS shop.example:"
				}
				r := attempt(t, c, probe.Target{Name: "shop"}, plenty)
				if r.Outcome != probe.Success || !strings.HasPrefix(f.requests(), want+c.Port) {
					t.Errorf("%s, https %t, private %t: got %v %q %q; the proxy got %q", scheme, https, private, r.Outcome, r.Reason, r.Detail, f.requests())
				}
				if expiry := time.Until(time.Unix(r.CertificateExpiry, 0)); https && (expiry < time.Hour || expiry > 2*time.Hour) {
					t.Errorf("%s: the certificate of the target expires in %v", scheme, expiry)
				}
				if private {
					c.Proxy.Password = "secreT"
					wantResult(t, attempt(t, c, probe.Target{Name: "shop"}, plenty), probe.Unknown, "http.proxy")
				}
			}
		}
	}
}

func TestAFailureOfTheProxyIsNotTheTargets(t *testing.T) {
	tier.Slow(t)
	f := &forwarder{}
	web := httptest.NewServer(f)
	defer web.Close()
	untrusted := httptest.NewTLSServer(f)
	defer untrusted.Close()
	socks := "socks5://" + f.serveSocks(t)
	closed := listenRaw(t, func(net.Conn) {})
	silent := listenRaw(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
	greeting := listenRaw(t, func(conn net.Conn) {
		io.ReadFull(conn, make([]byte, 3))
		conn.Write([]byte{5, 0})
		io.Copy(io.Discard, conn)
	})
	talkative := listenRaw(t, func(conn net.Conn) { io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nmore") })
	request := func(conn net.Conn) { http.ReadRequest(bufio.NewReader(conn)) }
	dying := listenRaw(t, request)
	halting := listenRaw(t, func(conn net.Conn) { request(conn); io.WriteString(conn, "HTTP/1.1 20") })
	refused := listenRaw(t, func(net.Conn) {})
	if listener, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		refused = listener.Addr().String()
		listener.Close()
	}
	for _, test := range []struct {
		name, proxy, scheme, host string
		outcome                   probe.Outcome
		reason                    probe.Reason
	}{
		{"nobody listens", "http://" + refused, "http", "shop.example", probe.Unknown, "http.proxy"},
		{"nobody listens, tunnel", "http://" + refused, "https", "shop.example", probe.Unknown, "http.proxy"},
		{"nobody listens, SOCKS", "socks5://" + refused, "http", "shop.example", probe.Unknown, "http.proxy"},
		{"the proxy is not trusted", untrusted.URL, "https", "shop.example", probe.Unknown, "http.proxy"},
		{"the proxy closes the tunnel", "http://" + closed, "https", "shop.example", probe.Unknown, "http.proxy"},
		{"the proxy closes, SOCKS", "socks5://" + closed, "https", "shop.example", probe.Unknown, "http.proxy"},
		{"the proxy closes, not a tunnel", "http://" + closed, "http", "shop.example", probe.Unknown, "http.proxy"},
		{"the proxy dies, not a tunnel", "http://" + dying, "http", "shop.example", probe.Unknown, "http.proxy"},
		{"the response breaks off, not a tunnel", "http://" + halting, "http", "shop.example", probe.Failure, probe.ReasonHTTPProtocol},
		{"the target is silent, not a tunnel", "http://" + silent, "http", "shop.example", probe.Failure, probe.ReasonHTTPTimeout},
		{"the proxy says too much", "http://" + talkative, "https", "shop.example", probe.Unknown, "http.proxy"},
		{"another protocol", "socks5://" + talkative, "https", "shop.example", probe.Unknown, "http.proxy"},
		{"forbidden", web.URL, "https", "denied.example", probe.Unknown, "http.proxy"},
		{"forbidden, SOCKS", socks, "https", "denied.example", probe.Unknown, "http.proxy"},
		{"the target is closed", web.URL, "https", "shop.example", probe.Failure, "http.proxy"},
		{"the target is closed, not a tunnel", web.URL, "http", "shop.example", probe.Failure, probe.ReasonHTTPStatus},
		{"the target refuses", socks, "http", "refused.example", probe.Failure, probe.ReasonTCPRefused},
		{"the target is unreachable", socks, "http", "unreachable.example", probe.Failure, probe.ReasonTCPUnreachable},
		{"general failure", socks, "http", "shop.example", probe.Unknown, "http.proxy"},
		{"the target is silent", "http://" + silent, "https", "shop.example", probe.Failure, probe.ReasonTCPTimeout},
		{"the target is silent, SOCKS", "socks5://" + greeting, "https", "shop.example", probe.Failure, probe.ReasonTCPTimeout},
		{"the proxy is silent, SOCKS", "socks5://" + silent, "https", "shop.example", probe.Unknown, "http.proxy"},
	} {
		timeout := plenty
		if strings.Contains(test.name, "is silent") {
			timeout = short
		}
		c := httpprobe.Config{Host: test.host, Port: "9", Scheme: test.scheme, Proxy: &httpprobe.Proxy{URL: test.proxy, User: ""}}
		var r probe.Result
		testsync.Longer(t, test.name, timeout, testsync.Timeout, func(timeout time.Duration) bool {
			r = attempt(t, c, probe.Target{Name: "shop"}, timeout)
			isEarly := r.Outcome == probe.Unknown && timeout < plenty // before the connection to the proxy was open
			return !isEarly || test.outcome == probe.Unknown
		})
		if r.Outcome != test.outcome || r.Reason != test.reason {
			t.Errorf("%s: got %v %q %q, want %v %q", test.name, r.Outcome, r.Reason, r.Detail, test.outcome, test.reason)
		}
	}
}

func TestALackOfDescriptorsIsNotTheProxys(t *testing.T) {
	h := handler(t, httpprobe.Config{Host: "shop.example", Port: "80", Proxy: &httpprobe.Proxy{URL: "http://127.0.0.1:9"}})
	restore := faulttest.NoDescriptors(t)
	r := h.Probe(t.Context(), probe.Target{Name: "shop"})
	restore()
	wantResult(t, r, probe.Unknown, probe.ReasonResources)
}

func TestARestrictedAttemptThroughAProxyIsChecked(t *testing.T) {
	target := serve(t, func(http.ResponseWriter, *http.Request) {})
	web := httptest.NewServer(&forwarder{})
	defer web.Close()
	h := handler(t, httpprobe.Config{Port: "web", Proxy: &httpprobe.Proxy{URL: web.URL}})
	for _, allows := range []bool{true, false} {
		ctx := dial.WithAllow(t.Context(), func(host string, to netip.AddrPort) error {
			if allows && to.Port() == target.Ports["web"] {
				return nil
			}
			return errors.New("is not allowed")
		})
		want, reason := probe.Success, probe.Reason("")
		if !allows {
			want, reason = probe.Failure, probe.ReasonNotAllowed
		}
		wantResult(t, h.Probe(ctx, target), want, reason)
		named := target
		named.Address = "shop.example"
		wantResult(t, h.Probe(ctx, named), probe.Failure, probe.ReasonNotAllowed)
	}
}

func TestAHostThatIsTooLongForSOCKSIsNotAskedFor(t *testing.T) {
	// The length of a name has one byte: the proxy would take the rest of the name for the port, and for data for the target.
	long := strings.Repeat("a.", 150) + "example"
	f := &forwarder{}
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+long+"/", http.StatusFound)
	})
	c := httpprobe.Config{Port: "web", Redirects: "all", Proxy: &httpprobe.Proxy{URL: "socks5://" + f.serveSocks(t)}}
	r := attempt(t, c, target, plenty)
	if got := f.requests(); r.Outcome != probe.Failure || r.Reason != probe.ReasonDNSFailed || strings.Contains(got, "\n") {
		t.Errorf("got %v %q %q; the proxy got %.80q", r.Outcome, r.Reason, r.Detail, got)
	}
}

func TestATunnelIsKept(t *testing.T) {
	authority := dialtest.NewAuthority(t)
	target := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{authority.Sign(t, time.Hour, "127.0.0.1")}}, false)
	f := &forwarder{}
	web := httptest.NewServer(f)
	defer web.Close()
	h := handler(t, httpprobe.Config{Port: "web", Scheme: "https", TLS: &httpprobe.TLS{CAFile: authority.File}, ReuseConnection: true, Proxy: &httpprobe.Proxy{URL: web.URL}})
	for range 3 {
		wantResult(t, h.Probe(t.Context(), target), probe.Success, "")
	}
	if got := f.requests(); strings.Contains(got, "\n") {
		t.Errorf("the proxy got %q", got)
	}
}

func TestErrorsOfAProxyBlockShowNoCredentials(t *testing.T) {
	for field, p := range map[string]httpprobe.Proxy{
		"proxy.url":      {URL: "http://me:secret@proxy:3128"},
		"proxy.url ":     {URL: "http://me:secret@proxy:31 28"},
		"proxy.url  ":    {URL: "ftp://proxy:3128"},
		"proxy.url 0":    {URL: "http://proxy"},
		"proxy.url 1":    {URL: "http://proxy:0"},
		"proxy.url 2":    {URL: "http://proxy:3128/path"},
		"proxy.url 3":    {},
		"proxy.user":     {URL: "http://proxy:3128", Password: "secret"},
		"proxy.user ":    {URL: "http://proxy:3128", User: "a:b", Password: "secret"},
		"proxy.password": {URL: "http://proxy:3128", User: "me", Password: strings.Repeat("secret", 50)},
		"proxy.ca_file":  {URL: "http://proxy:3128", CAFile: "/ca.pem"},
		"proxy.ca_file ": {URL: "https://proxy:3128", CAFile: "/nowhere"},
	} {
		_, err := httpprobe.New(httpprobe.Config{Port: "80", Proxy: &p})
		known, ok := errors.AsType[*probe.FieldError](err)
		if want, _, _ := strings.Cut(field, " "); !ok || known.Field != want || known.Plain != (p.Password != "") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", field, err)
		}
	}
	for field, c := range map[string]httpprobe.Config{
		"unix_socket": {UnixSocket: "/s"},
		"ip_family":   {Port: "80", IPFamily: "4"},
		"addresses":   {Port: "80", Addresses: "all"},
	} {
		c.Proxy = &httpprobe.Proxy{URL: "http://proxy:3128"}
		_, err := httpprobe.New(c)
		if known, ok := errors.AsType[*probe.FieldError](err); !ok || known.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}
