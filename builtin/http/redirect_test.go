package httpprobe_test

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

// bounce serves redirects. The path /to/... is answered with a redirect to what
// the query says; /ok and /bad with 200 and 500; /n leads to /n-1, and /0 is /ok.
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
	if got := attempt(t, c, target, plenty); got.Detail != `status 302 to host "login.example", want 200-299` {
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
