package httpprobe_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// bounce serves redirects. The path /to/... redirects to the address in the query; /ok and /bad respond with 200 and 500; /n
// redirects to /n-1, and /0 is /ok.
func bounce(t *testing.T) probe.Target {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok", "/0":
		case "/bad":
			w.WriteHeader(500)
		case "/to":
			w.Header().Set("Location", r.URL.Query().Get("location"))
			w.WriteHeader(302)
		case "/nowhere":
			w.WriteHeader(302)
		default:
			n, _ := strconv.Atoi(r.URL.Path[1:])
			http.Redirect(w, r, "/"+strconv.Itoa(n-1), http.StatusTemporaryRedirect)
		}
	})
}

func TestRedirectsAreFollowedAsConfigured(t *testing.T) {
	target := bounce(t)
	otherPort := "127.0.0.1:" + strconv.Itoa(int(bounce(t).Ports["web"]))
	otherHost := "localhost:" + strconv.Itoa(int(target.Ports["web"]))
	to := func(location string) string { return "/to?location=" + location }
	tests := []struct {
		name      string
		redirects string
		path      string
		outcome   probe.Outcome
		reason    probe.Reason
	}{
		{"local, to a good path", "local", to("/ok"), probe.Success, ""},
		{"local, to a bad path", "local", to("/bad"), probe.Failure, probe.ReasonHTTPStatus},
		{"local, to another port", "local", to("http://" + otherPort + "/ok"), probe.Success, ""},
		{"local, to another port's bad path", "local", to("http://" + otherPort + "/bad"), probe.Failure, probe.ReasonHTTPStatus},
		{"local, to another host", "local", to("http://" + otherHost + "/bad"), probe.Warning, probe.ReasonHTTPRedirect},
		{"local, to a host that is none", "local", to("http://nowhere.invalid/ok"), probe.Warning, probe.ReasonHTTPRedirect},
		{"local, without a location", "local", "/nowhere", probe.Warning, probe.ReasonHTTPRedirect},
		{"local, to what cannot be parsed", "local", to("/%25zz"), probe.Failure, probe.ReasonHTTPRedirect},
		{"local, to another scheme", "local", to("ftp://127.0.0.1/ok"), probe.Failure, probe.ReasonHTTPRedirect},
		{"the default is local", "", to("http://" + otherHost + "/ok"), probe.Warning, probe.ReasonHTTPRedirect},
		{"nine redirects", "local", "/9", probe.Success, ""},
		{"ten redirects", "local", "/10", probe.Failure, probe.ReasonHTTPRedirect},
		{"none", "none", to("/bad"), probe.Warning, probe.ReasonHTTPRedirect},
		{"all, to another host's good path", "all", to("http://" + otherHost + "/ok"), probe.Success, ""},
		{"all, to another host's bad path", "all", to("http://" + otherHost + "/bad"), probe.Failure, probe.ReasonHTTPStatus},
		{"all, to no host", "all", to("http:///ok"), probe.Failure, probe.ReasonHTTPRedirect},
		{"all, to this machine by another name", "all", to("http://0.0.0.0:1/ok"), probe.Failure, probe.ReasonDNSFailed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := httpprobe.Config{Port: "web", Path: test.path, Redirects: test.redirects}
			wantResult(t, attempt(t, c, target, plenty), test.outcome, test.reason)
		})
	}
}

func TestARedirectThatIsNotFollowedNamesTheHost(t *testing.T) {
	target := bounce(t)
	c := httpprobe.Config{Port: "web", Path: "/to?location=http://login.example/"}
	if got := attempt(t, c, target, plenty); got.Detail != `status 302 to host "login.example": redirect not followed` {
		t.Errorf("got the detail %q", got.Detail)
	}
	c.Status = []string{"200-299"}
	if got := attempt(t, c, target, plenty); got.Detail != `status 302 to host "login.example" of /to, want 200-299` {
		t.Errorf("got the detail %q", got.Detail)
	}
}

func TestAnotherHostDoesNotGetTheHeaders(t *testing.T) {
	var heads atomic.Value
	other := serve(t, func(w http.ResponseWriter, r *http.Request) { heads.Store(r.Header.Clone()) })
	to := "http://" + net.JoinHostPort("localhost", strconv.Itoa(int(other.Ports["web"])))
	c := httpprobe.Config{Port: "web", Path: "/to?location=" + to, Redirects: "all", Headers: map[string][]string{
		"X-Token": {"secret"}, "User-Agent": {"me"},
	}}
	wantResult(t, attempt(t, c, bounce(t), plenty), probe.Success, "")
	got := heads.Load().(http.Header)
	if got.Get("X-Token") != "" || got.Get("Referer") != "" || got.Get("User-Agent") != "me" {
		t.Errorf("the other host got %v", got)
	}
}

// Another port or scheme of the same host may be another owner's server, or one that anyone can listen on.
func TestOnlyTheSameServerGetsTheHeadersAndTheCertificate(t *testing.T) {
	ca := dialtest.NewAuthority(t)
	type seen struct {
		token, referer string
		certificates   int
	}
	requests := make(chan seen, 2)
	start := func(secure bool) string {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if to := r.URL.Query().Get("to"); to != "" {
				w.Header().Set("Location", to)
				w.WriteHeader(http.StatusFound)
				return
			}
			got := seen{token: r.Header.Get("X-Token"), referer: r.Header.Get("Referer")}
			if r.TLS != nil {
				got.certificates = len(r.TLS.PeerCertificates)
			}
			requests <- got
		}))
		if s.TLS = serverConfig(ca.Sign(t, time.Hour, "127.0.0.1")); secure {
			s.TLS.ClientAuth = tls.RequestClientCert
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		return s.URL
	}
	plain, otherPlain, secure, otherSecure := start(false), start(false), start(true), start(true)
	certFile, keyFile := dialtest.Files(t, ca.Sign(t, time.Hour, "client"))
	for name, test := range map[string]struct {
		from, to string
		isSame   bool
	}{
		"the same server":             {plain, plain, true},
		"the same server, with https": {secure, secure, true},
		"a path of the same server":   {secure, "", true},
		"another port":                {plain, otherPlain, false},
		"another port, with https":    {secure, otherSecure, false},
		"from https to http":          {secure, plain, false},
		"from http to https":          {plain, secure, false},
		"back again":                  {secure, plain + "/?to=" + secure + "/end", true},
	} {
		t.Run(name, func(t *testing.T) {
			from, err := url.Parse(test.from)
			if err != nil {
				t.Fatal(err)
			}
			c := httpprobe.Config{
				Port: from.Port(), Host: "127.0.0.1", Scheme: from.Scheme, Path: "/?" + url.Values{"to": {test.to + "/end"}}.Encode(),
				Headers: map[string][]string{"X-Token": {"secret"}},
				TLS:     &httpprobe.TLS{CAFile: ca.File, CertFile: certFile, KeyFile: keyFile},
			}
			wantResult(t, attempt(t, c, probe.Target{Name: "test"}, plenty), probe.Success, "")
			got := testsync.Receive(t, "the request", requests)
			if want := test.isSame; (got.token == "secret") != want || want && got.certificates == 0 && from.Scheme == "https" || !want && got != (seen{}) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestAGivenHostIsKeptOnRelativeRedirectsOnly(t *testing.T) {
	var hosts []string
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		hosts = append(hosts, r.Host)
		switch r.URL.Path {
		case "/first":
			w.Header().Set("Location", "/second")
			w.WriteHeader(302)
		case "/second":
			w.Header().Set("Location", "http://"+r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()+"/third")
			w.WriteHeader(302)
		}
	})
	c := httpprobe.Config{Port: "web", Path: "/first", Headers: map[string][]string{"Host": {"shop.example"}}}
	wantResult(t, attempt(t, c, target, plenty), probe.Success, "")
	at := net.JoinHostPort(target.Address, strconv.Itoa(int(target.Ports["web"])))
	if want := "shop.example shop.example " + at; strings.Join(hosts, " ") != want {
		t.Errorf("got the hosts %q, want %q", hosts, want)
	}
}

// From where the probe runs, the name resolves to the load balancer, or not at all. The server means itself.
func TestARedirectToTheNameInTheHostHeaderIsFollowedAtTheTarget(t *testing.T) {
	type seen struct{ host, path, authorization, token string }
	var requests []seen
	handler := func(scheme string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			requests = append(requests, seen{r.Host, r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("X-Token")})
			next := map[string]string{
				"/start": scheme + "://" + r.Host + "/named", "/named": "/relative", "/relative": scheme + "://" + strings.ToUpper(r.Host) + "/end",
				"/listen": scheme + "://shop.example:" + r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr).AddrPort().String()[len("127.0.0.1:"):] + "/end",
				"/port":   scheme + "://shop.example:1/end", "/scheme": map[string]string{"http": "https", "https": "http"}[scheme] + "://shop.example/end",
				"/other": scheme + "://pay.example/end",
			}[r.URL.Path]
			if next != "" {
				w.Header().Set("Location", next)
				w.WriteHeader(http.StatusFound)
			}
		}
	}
	ca := dialtest.NewAuthority(t)
	secure := httptest.NewUnstartedServer(handler("https"))
	secure.TLS = serverConfig(ca.Sign(t, time.Hour, "127.0.0.1"))
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(handler("http"))
	defer plain.Close()
	for _, c := range []struct {
		server, name, path string
		mode               probe.Compatibility
		paths              string
		want               probe.Outcome
	}{
		{plain.URL, "shop.example", "/start", probe.Mended, "/start /named /relative /end", probe.Success},
		{secure.URL, "shop.example", "/start", probe.Mended, "/start /named /relative /end", probe.Success},
		{plain.URL, "shop.example:8080", "/start", probe.Mended, "/start /named /relative /end", probe.Success},
		{plain.URL, "shop.example", "/listen", probe.Mended, "/listen /end", probe.Success},
		{plain.URL, "shop.example", "/start", probe.Kubelet, "/start", probe.Warning},
		{plain.URL, "shop.example", "/port", probe.Mended, "/port", probe.Warning},
		{plain.URL, "shop.example", "/scheme", probe.Mended, "/scheme", probe.Warning},
		{secure.URL, "shop.example", "/scheme", probe.Mended, "/scheme", probe.Warning},
		{plain.URL, "shop.example", "/other", probe.Mended, "/other", probe.Warning},
	} {
		requests = nil
		u, err := url.Parse(c.server)
		if err != nil {
			t.Fatal(err)
		}
		config := httpprobe.Config{
			Host: "127.0.0.1", Port: u.Port(), Scheme: u.Scheme, Path: c.path, Compatibility: c.mode,
			Headers: map[string][]string{"Host": {c.name}, "Authorization": {"Bearer secret"}, "X-Token": {"secret"}},
		}
		if u.Scheme == "https" {
			config.TLS = &httpprobe.TLS{CAFile: ca.File}
		}
		got := attempt(t, config, probe.Target{Name: "test"}, plenty)
		var paths []string
		for _, r := range requests {
			paths = append(paths, r.path)
			if !strings.EqualFold(r.host, c.name) || r.authorization != "Bearer secret" || r.token != "secret" {
				t.Errorf("%s%s: the server got %+v", c.server, c.path, r)
			}
		}
		if got.Outcome != c.want || strings.Join(paths, " ") != c.paths {
			t.Errorf("%s%s as %s: %v %s, after %v", c.server, c.path, c.name, got.Outcome, got.Detail, paths)
		}
	}
}

func TestAnotherHostDoesNotGetTheHostHeader(t *testing.T) {
	var host string
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) { host = r.Host })
	at := net.JoinHostPort("localhost", strconv.Itoa(int(other.Ports["web"])))
	c := httpprobe.Config{Port: "web", Path: "/to?location=//" + at + "/", Redirects: "all", Headers: map[string][]string{"Host": {"shop.example"}}}
	wantResult(t, attempt(t, c, bounce(t), plenty), probe.Success, "")
	if host != at {
		t.Errorf("the other host was asked for %q", host)
	}
}

func TestAnErrorAfterARedirectNamesItsHost(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	notHTTP := listenRaw(t, func(conn net.Conn) { io.WriteString(conn, "220 mail\r\n") })
	answering := func(text string) string {
		return listenRaw(t, func(conn net.Conn) { skip(conn); io.WriteString(conn, text) })
	}
	for name, host := range map[string]string{
		"refused": l.Addr().String(), "not HTTP": notHTTP,
		"status": answering("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), "assert": answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"),
		"body": answering("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"),
	} {
		t.Run(name, func(t *testing.T) {
			got := attempt(t, httpprobe.Config{Port: "web", Path: "/to?location=http://" + host + "/x%3Fsecret", BodyContains: "ok"}, bounce(t), plenty)
			if got.Outcome != probe.Failure || !strings.HasPrefix(got.Detail, "after a redirect to "+host+": ") || strings.Contains(got.Detail, "secret") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestARedirectToAPortThatIsNoneIsReported(t *testing.T) {
	for _, port := range []string{"0", "65536", "99999", "65616"} { // equals 80 in 16 bits
		for _, redirects := range []string{"local", "all"} {
			got := attempt(t, httpprobe.Config{Port: "web", Path: "/to?location=http://127.0.0.1:" + port + "/", Redirects: redirects}, bounce(t), plenty)
			wantResult(t, got, probe.Failure, probe.ReasonHTTPRedirect)
			if want := "the redirect is to port " + port + "; a port is from 1 to 65535"; !strings.Contains(got.Detail, want) {
				t.Errorf("got %q, want %q", got.Detail, want)
			}
		}
	}
}

func TestABodyIsSentAgainAfterATemporaryRedirect(t *testing.T) {
	var length atomic.Int64
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/next", http.StatusTemporaryRedirect)
			return
		}
		length.Store(r.ContentLength)
	})
	wantResult(t, attempt(t, httpprobe.Config{Port: "web", Method: "POST", Body: "hello"}, target, plenty), probe.Success, "")
	if length.Load() != 5 {
		t.Errorf("the second body is %d bytes long", length.Load())
	}
}

// The certificate that expires first counts, as for min_validity.
func TestTheExpiryIsTheFirstOfAllConnections(t *testing.T) {
	ca := dialtest.NewAuthority(t)
	start := func(valid time.Duration, h http.Handler) (*httptest.Server, int64) {
		s := httptest.NewUnstartedServer(h)
		certificate := ca.Sign(t, valid, "127.0.0.1")
		s.TLS = serverConfig(certificate)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s, certificate.Leaf.NotAfter.Unix()
	}
	later, _ := start(48*time.Hour, http.NotFoundHandler())
	first, soon := start(time.Hour, http.RedirectHandler(later.URL, http.StatusFound))
	back, _ := start(48*time.Hour, http.RedirectHandler(first.URL, http.StatusFound))
	for name, s := range map[string]*httptest.Server{"the first connection": first, "the second of three": back} {
		t.Run(name, func(t *testing.T) {
			c := httpprobe.Config{Port: "web", Scheme: "https", TLS: &httpprobe.TLS{CAFile: ca.File}}
			if got := attempt(t, c, targetOf(s.Listener.Addr()), plenty); got.CertificateExpiry != soon {
				t.Errorf("got %d, want %d", got.CertificateExpiry, soon)
			}
		})
	}
}

// The data may be meant only for the configured server.
func TestABodyIsNotSentToAnotherHost(t *testing.T) {
	ca := dialtest.NewAuthority(t)
	var bodies atomic.Int64
	count := func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusPermanentRedirect)
		} else if n, _ := io.Copy(io.Discard, r.Body); n > 0 {
			bodies.Add(1)
		}
	}
	plain := serve(t, count)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(count))
	secure.TLS = serverConfig(ca.Sign(t, time.Hour, "127.0.0.1"))
	secure.StartTLS()
	t.Cleanup(secure.Close)
	port := strconv.Itoa(int(plain.Ports["web"]))
	for name, test := range map[string]struct {
		scheme, to string
		bodies     int64
	}{
		"the same host":      {"http", "http://127.0.0.1:" + port + "/", 1},
		"another host":       {"http", "http://localhost:" + port + "/", 0},
		"from https to http": {"https", "http://127.0.0.1:" + port + "/", 0},
	} {
		t.Run(name, func(t *testing.T) {
			bodies.Store(0)
			target := plain
			if test.scheme == "https" {
				target = targetOf(secure.Listener.Addr())
			}
			c := httpprobe.Config{Port: "web", Scheme: test.scheme, Path: "/?to=" + test.to, Method: "POST", Body: "hello", Redirects: "all", TLS: &httpprobe.TLS{CAFile: ca.File}}
			got := attempt(t, c, target, plenty)
			if want := map[int64]probe.Outcome{0: probe.Warning, 1: probe.Success}[test.bodies]; got.Outcome != want || bodies.Load() != test.bodies {
				t.Errorf("got %+v, and %d bodies were sent", got, bodies.Load())
			}
		})
	}
}

// A server that sets a cookie and redirects gets it back, in the same attempt.
func TestCookiesAreKeptBetweenTheRedirectsOfAnAttempt(t *testing.T) {
	var asked atomic.Int64
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		cookie, _ := r.Cookie("seen")
		switch {
		case r.URL.Path == "/elsewhere" && cookie != nil: // not the cookie's path
			w.WriteHeader(http.StatusTeapot)
		case r.URL.Path == "/elsewhere", cookie != nil && r.URL.Path == "/in/":
		case r.URL.Path == "/in/":
			w.Header().Add("Set-Cookie", "seen=1; Path=/in/; Domain=example.com") // the domain of another server
			w.Header().Add("Set-Cookie", "seen=2; Path=/in/")
			w.Header().Set("Location", "/in/")
			w.WriteHeader(http.StatusFound)
		default:
			w.Header().Add("Set-Cookie", "seen=3; Path=/in/")
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}
	})
	for _, c := range []httpprobe.Config{{Path: "/in/"}, {Path: "/start"}, {Path: "/in/", ReuseConnection: true}, {Path: "/in/", Headers: map[string][]string{"Cookie": {"own=1"}}}} {
		c.Port = "web"
		asked.Store(0)
		h := handler(t, c)
		for range 2 { // each attempt starts without cookies
			wantResult(t, h.Probe(t.Context(), target), probe.Success, "")
		}
		if n := asked.Load(); n != 4 {
			t.Errorf("%s: %d requests in two attempts", c.Path, n)
		}
	}
	wantResult(t, attempt(t, httpprobe.Config{Port: "web", Path: "/in/", Compatibility: probe.Kubelet}, target, plenty), probe.Failure, probe.ReasonHTTPRedirect)
}

// If the server replaces a configured cookie, only the new one is sent; and if the body is not sent again, neither is its type.
// Browsers do the same, and it also holds after a redirect to the server's own name.
func TestARedirectSendsWhatTheServerHasReplacedOnce(t *testing.T) {
	for _, to := range []string{"/home", "//shop.example/home"} {
		var got, kind string
		target := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/home" {
				got, kind = strings.Join(r.Header["Cookie"], "; "), r.Header.Get("Content-Type")
				return
			}
			w.Header().Set("Set-Cookie", "session=new; Path=/")
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusSeeOther)
		})
		wantResult(t, attempt(t, httpprobe.Config{Port: "web", Path: "/login", Method: "POST", Body: "{}", Headers: map[string][]string{
			"Cookie": {"session=old; team=shop"}, "Content-Type": {"application/json"}, "Host": {"shop.example"},
		}}, target, plenty), probe.Success, "")
		if strings.Contains(got, "old") || strings.Count(got, "session=new") != 1 || !strings.Contains(got, "team=shop") || kind != "" {
			t.Errorf("to %s: the cookies are %q, the type %q", to, got, kind)
		}
	}
}

// Another port, scheme or name of a host may belong to another server.
func TestOnlyTheServerThatHasSetACookieGetsIt(t *testing.T) {
	got := make(chan string, 2)
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Cookie") })
	port := strconv.Itoa(int(other.Ports["web"]))
	for _, to := range []string{"http://127.0.0.1:" + port + "/", "http://localhost:" + port + "/"} {
		target := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Set-Cookie", "session=geheim; Path=/")
			http.Redirect(w, r, to, http.StatusFound)
		})
		for _, headers := range []map[string][]string{nil, {"Cookie": {"own=geheim"}}} {
			wantResult(t, attempt(t, httpprobe.Config{Port: "web", Redirects: "all", Headers: headers}, target, plenty), probe.Success, "")
			if cookies := <-got; cookies != "" {
				t.Errorf("%s gets %q", to, cookies)
			}
		}
	}
}

// A name has two forms for the same host. The proxy stands in for its server.
func TestARedirectToTheOtherFormOfANameIsLocal(t *testing.T) {
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Location", "http://b\xc3\xbccher.example:80/end")
			w.WriteHeader(http.StatusFound)
		case "/end":
			_, _ = io.WriteString(w, "host "+r.URL.Host+", token "+r.Header.Get("X-Token"))
		}
	})
	c := httpprobe.Config{
		Port: "80", Headers: map[string][]string{"X-Token": {"t"}}, BodyRegex: "^host xn--bcher-kva.example:80, token t$",
		Proxy: &httpprobe.Proxy{URL: "http://127.0.0.1:" + strconv.Itoa(int(proxy.Ports["web"]))},
	}
	for _, address := range []string{"xn--bcher-kva.example", "Bücher.example"} {
		wantResult(t, attempt(t, c, probe.Target{Name: "shop", Address: address}, plenty), probe.Success, "")
	}
}

// All spellings of the request's host in a redirect are the same host.
func TestARedirectToAnotherSpellingOfTheHostIsLocal(t *testing.T) {
	var target probe.Target
	target = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, "http://"+to+":"+strconv.Itoa(int(target.Ports["web"]))+"/end", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "token "+r.Header.Get("X-Token"))
	})
	for _, c := range []struct{ host, to string }{
		{"localhost", "localhost."}, {"LocalHost", "LOCALHOST."}, {"127.0.0.1", "[::ffff:127.0.0.1]"}, {"::ffff:127.0.0.1", "127.0.0.1"},
	} {
		config := httpprobe.Config{Port: "web", Host: c.host, Path: "/?to=" + url.QueryEscape(c.to), Headers: map[string][]string{"X-Token": {"t"}}, BodyRegex: "^token t$", IPFamily: "4"}
		wantResult(t, attempt(t, config, target, plenty), probe.Success, "")
	}
}

func TestAHostHeaderHasTheFormOfLookups(t *testing.T) {
	target := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) })
	c := httpprobe.Config{Port: "web", Headers: map[string][]string{"Host": {"bücher.example:8080"}}, BodyRegex: "^xn--bcher-kva.example:8080$"}
	wantResult(t, attempt(t, c, target, plenty), probe.Success, "")
}
