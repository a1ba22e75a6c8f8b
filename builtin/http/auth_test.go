package httpprobe_test

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

func TestARequestHasItsCredentials(t *testing.T) {
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch user, password, ok := r.BasicAuth(); {
		case ok && user == "alice" && password == "correct:horse":
		case r.Header.Get("Authorization") == "Bearer second":
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	for _, method := range []string{"GET", "POST"} { // GET attempts are made in steps, POST attempts are not
		c := httpprobe.Config{Port: "web", Method: method, BasicAuth: &httpprobe.Basic{Username: "alice", Password: "correct:horse"}}
		wantResult(t, attempt(t, c, target, plenty), probe.Success, "")
	}
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	h := handler(t, httpprobe.Config{Port: "web", BearerTokenFile: file})
	wantResult(t, h.Probe(t.Context(), target), probe.Failure, probe.ReasonHTTPStatus)
	write(" second\n")
	wantResult(t, h.Probe(t.Context(), target), probe.Success, "")
	for _, text := range []string{"", "two lines\nof geheim", "gehe\x01im", strings.Repeat("geheim", 10_000)} { // our fault, not the target's
		write(text)
		got := h.Probe(t.Context(), target)
		if wantResult(t, got, probe.Unknown, "http.auth"); strings.Contains(got.Detail, "gehe") || !strings.Contains(got.Detail, "bearer_token_file") {
			t.Errorf("got the detail %q", got.Detail)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	wantResult(t, h.Probe(t.Context(), target), probe.Unknown, "http.auth")
}

// If a server sends credentials back, neither another server nor a result gets them.
func TestCredentialsDoNotLeaveWithARedirect(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("geheim"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 10)
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Authorization") })
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, credentials, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		to := "http://127.0.0.1:" + strconv.Itoa(int(other.Ports["web"]))
		switch r.URL.Path {
		case "/same":
			to = "/end"
		case "/end":
			got <- r.Header.Get("Authorization")
			return
		case "/name":
			to = "http://" + net.JoinHostPort("localhost", strconv.Itoa(int(other.Ports["web"])))
		case "/echo":
			to = "http://" + strings.TrimRight(credentials, "=") + ".invalid/"
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
	})
	for name, c := range map[string]httpprobe.Config{
		"Bearer geheim":        {BearerTokenFile: file},
		"Basic YTpnZWhlaW0xMg": {BasicAuth: &httpprobe.Basic{Username: "a", Password: "geheim12"}},
	} {
		c.Port, c.Redirects = "web", "all"
		for path, want := range map[string]string{"/same": name, "/port": "", "/name": ""} {
			c.Path = path
			wantResult(t, attempt(t, c, target, plenty), probe.Success, "")
			if header := strings.TrimRight(<-got, "="); header != want {
				t.Errorf("%s: %s got %q", name, path, header)
			}
		}
		c.Path, c.Redirects = "/echo", "local"
		if r := attempt(t, c, target, plenty); strings.Contains(r.Detail, "geheim") || strings.Contains(r.Detail, "YTpnZWhlaW0xMg") {
			t.Errorf("%s: the detail is %q", name, r.Detail)
		}
	}
}

func TestWrongCredentialsAreNamedAndNotShown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("geheim"), 0o600); err != nil {
		t.Fatal(err)
	}
	basic := func(name, password string) httpprobe.Config {
		return httpprobe.Config{BasicAuth: &httpprobe.Basic{Username: name, Password: password}}
	}
	both, header, bearer := basic("a", "geheim"), basic("a", "geheim"), httpprobe.Config{BearerTokenFile: file}
	both.BearerTokenFile = file
	header.Headers = map[string][]string{"authorization": {"geheim"}}
	bearer.Headers = header.Headers
	for want, c := range map[string]httpprobe.Config{
		"bearer_token_file: cannot be combined with basic_auth":        both,
		"basic_auth: cannot be combined with the header Authorization": header,
		"bearer_token_file: cannot be combined with the header":        bearer,
		"basic_auth.username: must not be empty":                       basic("", "geheim"),
		"basic_auth.username: must not contain a colon":                basic("a:b", "geheim"),
		"basic_auth.password: has a line break at its end":             basic("a", "geheim\n"),
		"basic_auth: has control characters":                           basic("a", "ge\x01heim"),
		"basic_auth.password: and username have":                       basic("a", strings.Repeat("geheim", 1000)),
		"bearer_token_file: cannot be read":                            {BearerTokenFile: file + "2"},
	} {
		c.Port = "80"
		_, err := httpprobe.New(c)
		field, problem, _ := strings.Cut(want, ": ")
		if wrong, ok := errors.AsType[*probe.FieldError](err); !ok || wrong.Field != field || !strings.Contains(wrong.Problem, problem) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
