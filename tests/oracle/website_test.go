package oracle

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// website is a server that acts on the path of a request, and records requests.
type website struct {
	server *httptest.Server
	mu     sync.Mutex
	seen   []string
}

// scheme is the protocol of a website.
type scheme string

const (
	plain    scheme = "plain"
	secure   scheme = "tls"
	old      scheme = "tls 1.1"
	modern   scheme = "tls, http/2"
	twelve   scheme = "tls 1.2"
	asking   scheme = "tls that asks for a certificate"
	mute     scheme = "says nothing"
	noServer scheme = "no server"
)

func newWebsite(how scheme) *website {
	w := new(website)
	w.server = httptest.NewUnstartedServer(w)
	w.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	switch how {
	case plain:
		w.server.Start()
	case mute: // only the kernel accepts connections
	case twelve:
		w.server.TLS = &tls.Config{MaxVersion: tls.VersionTLS12}
		w.server.StartTLS()
	case asking:
		w.server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
		w.server.StartTLS()
	case noServer:
		w.server.Start()
		w.server.Close()
	case old:
		w.server.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
		w.server.StartTLS()
	default:
		w.server.EnableHTTP2 = how == modern
		w.server.StartTLS()
	}
	return w
}

func (w *website) close() {
	w.server.CloseClientConnections()
	w.server.Close()
}

func (w *website) port() int { return w.server.Listener.Addr().(*net.TCPAddr).Port }

// ServeHTTP acts on the path. It responds to any other path with status 200.
func (w *website) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	w.note(r)
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	argument := ""
	if len(words) > 1 {
		argument = words[1]
	}
	n, _ := strconv.Atoi(argument)
	switch words[0] {
	case "status":
		to.WriteHeader(n)
		io.WriteString(to, "the body of "+argument)
	case "redirect":
		w.redirect(to, r, n)
	case "hop":
		if n > 0 {
			http.Redirect(to, r, "/hop/"+strconv.Itoa(n-1), http.StatusFound)
		}
	case "slowhop":
		if wait(r.Context(), 300*time.Millisecond); n > 0 {
			http.Redirect(to, r, "/slowhop/"+strconv.Itoa(n-1), http.StatusFound)
		}
	case "body":
		io.WriteString(to, strings.Repeat("x", n))
	case "late":
		wait(r.Context(), time.Minute)
	default:
		w.odd(to, r, words[0], n)
	}
}

// redirect responds with a status and the location in the query, in which PORT is replaced by the port of the site.
func (w *website) redirect(to http.ResponseWriter, r *http.Request, status int) {
	if location := r.URL.Query().Get("to"); location != "" {
		to.Header().Set("Location", strings.ReplaceAll(location, "PORT", strconv.Itoa(w.port())))
	}
	to.WriteHeader(status)
	io.WriteString(to, r.URL.Query().Get("body"))
}

// odd responds like a broken server.
func (w *website) odd(to http.ResponseWriter, r *http.Request, what string, n int) {
	switch what {
	case "stall", "short", "late-end":
		to.Header().Set("Content-Length", "20000")
		to.WriteHeader(n)
		io.WriteString(to, strings.Repeat("x", 100))
		_ = http.NewResponseController(to).Flush()
		if what == "stall" {
			wait(r.Context(), time.Minute)
		}
		panic(http.ErrAbortHandler)
	case "enough":
		io.WriteString(to, strings.Repeat("x", n))
		_ = http.NewResponseController(to).Flush()
		wait(r.Context(), time.Minute)
	case "headers":
		for i := range n {
			to.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("h", 1000))
		}
	case "raw":
		w.raw(to, r.URL.Query().Get("answer"))
	}
}

// raw responds with the given bytes and closes the connection.
func (w *website) raw(to http.ResponseWriter, answer string) {
	conn, buffer, err := http.NewResponseController(to).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	writeRaw(buffer, answer)
}

func writeRaw(to *bufio.ReadWriter, answer string) {
	to.WriteString(answer)
	_ = to.Flush()
}

// note records a request, without the parts that differ between runs.
func (w *website) note(r *http.Request) {
	var lines []string
	for name, values := range r.Header {
		if name == "Referer" || name == "User-Agent" && isOwn(values[0]) {
			values = []string{"(its own)"}
		}
		lines = append(lines, name+": "+strings.Join(values, "|"))
	}
	slices.Sort(lines)
	port := strconv.Itoa(w.port())
	text := fmt.Sprintf("%s %s %s host=%s %s", r.Method, r.RequestURI, r.Proto, r.Host, strings.Join(lines, "; "))
	if r.TLS != nil {
		text += fmt.Sprintf(" over %s for %q with %d certificates", tls.VersionName(r.TLS.Version), r.TLS.ServerName, len(r.TLS.PeerCertificates))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, strings.ReplaceAll(text, port, "PORT"))
}

// isOwn reports whether a User-Agent is the default of a side.
func isOwn(agent string) bool {
	return strings.HasPrefix(agent, "kube-probe/") || agent == "sonde-probe"
}

func (w *website) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// to returns the path that redirects to a location with a status.
func to(status int, location string) string {
	return fmt.Sprintf("/redirect/%d?to=%s", status, url.QueryEscape(location))
}

func raw(answer string) string { return "/raw?answer=" + url.QueryEscape(answer) }

func TestWebsiteRecordsRequests(t *testing.T) {
	w := newWebsite(plain)
	defer w.close()
	response, err := http.Get(w.server.URL + "/status/404?a=b")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if seen := w.requests(); response.StatusCode != 404 || len(seen) != 1 || !strings.HasPrefix(seen[0], "GET /status/404?a=b HTTP/1.1 host=127.0.0.1:PORT") {
		t.Errorf("got %d and noted %q", response.StatusCode, seen)
	}
}
