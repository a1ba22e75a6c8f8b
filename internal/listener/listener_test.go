package listener_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/tests/testsync"
)

const token = "correct-horse-battery"

func TestLoopbackAddressesAreRecognized(t *testing.T) {
	for address, want := range map[string]struct{ loopback, valid bool }{
		"127.0.0.1:9650": {true, true}, "127.8.8.8:0": {true, true}, "[::1]:1": {true, true}, "[::ffff:127.0.0.1]:1": {true, true}, "LocalHost:1": {true, true},
		"0.0.0.0:1": {false, true}, ":1": {false, true}, "[::]:1": {false, true}, "localhost.example:1": {false, true},
		"127.0.0.1:http": {true, false}, "127.0.0.1:65536": {true, false}, "127.0.0.1": {false, false}, "": {false, false},
	} {
		if loopback, valid := listener.Loopback(address); loopback != want.loopback || valid != want.valid {
			t.Errorf("%q gives %v, %v", address, loopback, valid)
		}
	}
}

func TestOnlyTheTokenMatches(t *testing.T) {
	for text, want := range map[string]string{token: "", "": "", "short": "needs 16", strings.Repeat("é", 9): "ASCII", token + " x": "without spaces", token + "\n": "without spaces"} {
		if got := listener.Token(text).Problem(); got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("of %q it says %q, want %q", text, got, want)
		}
	}
	for header, want := range map[string]bool{
		"Bearer " + token: true, "bearer  " + token + " ": true, "Bearer " + token + "x": false, "Bearer " + token[:20]: false,
		"Basic " + token: false, token: false, "Bearer": false, "": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", header)
		if got := listener.Token(token).Matches(listener.Bearer(r)); got != want {
			t.Errorf("%q matches: %v", header, got)
		}
		if !listener.Token("").Matches(listener.Bearer(r)) {
			t.Errorf("%q does not match no token", header)
		}
	}
}

// client is the other end of a connection.
type client struct {
	net.Conn
	*bufio.Reader
}

// request connects and sends a request.
func request(t *testing.T, p *testsync.Pipes, path string) client {
	t.Helper()
	conn, err := p.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return client{conn, bufio.NewReader(conn)}
}

// response returns the body of a response, or the text of an error.
func (c client) response() string {
	r, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		return err.Error()
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err.Error()
	}
	synctest.Wait()
	return string(body)
}

// Beyond the limit those go first that wait for nothing, and those of KeepOpen last. At the
// end the contexts of requests are done, and Serve waits for their handlers.
func TestANewConnectionTakesThePlaceOfTheOneThatNeedsItLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/stream" {
				listener.KeepOpen(r.Context())
			}
			if r.URL.Path != "/" {
				<-r.Context().Done()
			}
			_, _ = io.WriteString(w, "done")
		})
		p, served := testsync.NewPipes(), make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			served <- listener.HTTP{Handler: handler, MaxConnections: 3, Grace: time.Second}.Serve(ctx, p)
		}()

		stream := request(t, p, "/stream")
		time.Sleep(time.Millisecond)
		slow := request(t, p, "/slow")
		time.Sleep(time.Millisecond)
		idle := request(t, p, "/")
		if got := idle.response(); got != "done" {
			t.Fatalf("the response is %q", got)
		}
		second := request(t, p, "/slow")
		if _, err := idle.ReadByte(); err != io.EOF {
			t.Errorf("the idle connection: %v", err)
		}
		third := request(t, p, "/slow")
		if got := slow.response(); got != io.ErrUnexpectedEOF.Error() {
			t.Errorf("the oldest request: %q", got)
		}
		stop()
		for _, c := range []client{stream, second, third} {
			if got := c.response(); got != "done" {
				t.Errorf("at the end: %q", got)
			}
		}
		if err := <-served; err != nil {
			t.Errorf("Serve returned %v", err)
		}
		if _, err := p.Dial(t.Context(), "", ""); err != net.ErrClosed {
			t.Errorf("after the end: %v", err)
		}
	})
}
