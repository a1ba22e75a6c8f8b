package api_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// pipes sends requests to a listener without sockets.
type pipes struct{ *testsync.Pipes }

// servePipes serves without sockets, in a bubble of testing/synctest, until end is
// called.
func servePipes(t *testing.T, c api.Config) (p pipes, end func()) {
	p = pipes{testsync.NewPipes()}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	s := server(t, c)
	go func() { served <- s.Serve(ctx, p) }()
	return p, func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve returned %v", err)
		}
	}
}

// open opens a connection and sends text.
func (p pipes) open(t *testing.T, text string) net.Conn {
	t.Helper()
	c, err := p.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// ask sends a request on its own connection and returns the status.
func (p pipes) ask(t *testing.T, path string) int {
	t.Helper()
	c := p.open(t, rawRequest(path))
	defer c.Close()
	return status(t, c)
}

func rawRequest(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n" }

// status reads a response from a connection, which stays open, and returns its status.
func status(t *testing.T, c net.Conn) int {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}

// isClosed reports whether the server has closed a connection.
func isClosed(c net.Conn) bool {
	c.SetReadDeadline(time.Now().Add(time.Nanosecond))
	_, err := c.Read(make([]byte, 1))
	return err == io.EOF
}

func TestOpenConnectionsDoNotShutOutOthers(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, p pipes) net.Conn{
		"silent": func(t *testing.T, p pipes) net.Conn { return p.open(t, "") },
		"idle": func(t *testing.T, p pipes) net.Conn {
			c := p.open(t, rawRequest("/healthz"))
			status(t, c)
			return c
		},
		"half a request": func(t *testing.T, p pipes) net.Conn { return p.open(t, "GET /healthz HTTP/1.1\r\n") },
		"not reading":    func(t *testing.T, p pipes) net.Conn { return p.open(t, rawRequest("/healthz")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				metrics := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
				p, end := servePipes(t, api.Config{Metrics: metrics})
				stream := p.open(t, rawRequest("/v1/events"))
				events := bufio.NewReader(stream)
				if _, err := http.ReadResponse(events, nil); err != nil {
					t.Fatal(err)
				}
				var conns []net.Conn
				for range api.MaxConnections - 1 {
					conns = append(conns, open(t, p))
					time.Sleep(time.Millisecond) // their states begin at different times
				}
				for i, path := range []string{"/healthz", "/readyz", "/metrics", "/v1/stats"} {
					if got := p.ask(t, path); got != http.StatusOK {
						t.Errorf("%s: status %d", path, got)
					}
					synctest.Wait()
					if !isClosed(conns[0]) && i == 0 || isClosed(conns[len(conns)-1]) {
						t.Error("it is not the oldest connection that was closed")
					}
				}
				for range api.MaxConnections {
					conns = append(conns, open(t, p))
				}
				if line, err := events.ReadString('\n'); err != nil {
					t.Errorf("the event stream was closed: %q, %v", line, err)
				}
				stream.Close()
				for _, c := range conns {
					c.Close()
				}
				end()
			})
		})
	}
}

// large returns an engine whose list of targets is longer than what a server buffers.
func large() *idleEngine {
	e := &idleEngine{Engine: engine.New(engine.Config{}), targets: shop().targets}
	for range 1000 {
		e.targets = append(e.targets, e.targets[1])
	}
	return e
}

func TestClientsThatDoNotReadListsAreDisconnectedAndDelayNothingElse(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		p, end := servePipes(t, api.Config{Engine: large()})
		var conns []net.Conn
		for range 20 {
			conns = append(conns, p.open(t, rawRequest("/v1/targets?probes=true&limit=1000")))
		}
		synctest.Wait()
		if got := p.ask(t, "/v1/targets"); got != http.StatusServiceUnavailable {
			t.Errorf("status %d while %d clients do not read theirs", got, len(conns))
		}
		for _, path := range []string{"/v1/stats", "/v1/targets/shop/web", "/healthz"} {
			if got := p.ask(t, path); got != http.StatusOK {
				t.Errorf("%s: status %d", path, got)
			}
		}
		time.Sleep(api.StallTimeout)
		synctest.Wait()
		if got := p.ask(t, "/v1/targets"); got != http.StatusOK {
			t.Errorf("status %d when the clients should have been disconnected", got)
		}
		for _, c := range conns {
			c.Close()
		}
		end()
	})
}

func TestAClientThatReadsSlowlyGetsTheWholeResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, end := servePipes(t, api.Config{Engine: large()})
		c := p.open(t, rawRequest("/v1/targets?probes=true&limit=500"))
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		var body strings.Builder
		for err == nil {
			_, err = io.CopyN(&body, response.Body, 200<<10)
			time.Sleep(api.StallTimeout / 2)
		}
		if err != io.EOF || body.Len() < 500<<10 {
			t.Errorf("%d bytes, then %v", body.Len(), err)
		}
		c.Close()
		end()
	})
}
