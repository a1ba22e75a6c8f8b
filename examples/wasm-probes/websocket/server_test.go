package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
)

// talk is what a server does with a connection after the handshake.
type talk func(ctx context.Context, c *websocket.Conn) error

// echo sends back what comes, and answers pings.
func echo(ctx context.Context, c *websocket.Conn) error {
	for {
		kind, message, err := c.Read(ctx)
		if err != nil {
			return err
		}
		if err := c.Write(ctx, kind, message); err != nil {
			return err
		}
	}
}

// says sends messages first.
func says(messages ...string) talk {
	return func(ctx context.Context, c *websocket.Conn) error {
		for _, m := range messages {
			if err := c.Write(ctx, websocket.MessageText, []byte(m)); err != nil {
				return err
			}
		}
		return echo(ctx, c)
	}
}

// parts sends one message in many frames.
func parts(ctx context.Context, c *websocket.Conn) error {
	w, err := c.Writer(ctx, websocket.MessageBinary)
	for i := 0; err == nil && i < 1000; i++ {
		_, err = fmt.Fprintf(w, "%d ", i)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return err
	}
	return echo(ctx, c)
}

// pings asks the client for a pong before it says a word.
func pings(ctx context.Context, c *websocket.Conn) error {
	ctx = c.CloseRead(ctx) // it takes the pong
	if err := c.Ping(ctx); err != nil {
		return err
	}
	if err := c.Write(ctx, websocket.MessageText, []byte("alive")); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func full(_ context.Context, c *websocket.Conn) error {
	return c.Close(websocket.StatusTryAgainLater, "no room")
}

// service serves each kind of conversation on a path of its own.
func service() http.Handler {
	m := http.NewServeMux()
	for path, do := range map[string]talk{
		"/{$}": echo, "/feed": says("one", "two", "three"), "/parts": parts, "/pings": pings, "/full": full,
		"/large": says(strings.Repeat("x", 5*maxKept)+"behind", "before"),
	} {
		m.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"chat.v1"}})
			if err != nil {
				return
			}
			defer c.CloseNow()
			_ = do(r.Context(), c) // it ends when the client goes away
		})
	}
	m.HandleFunc("/private", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer x" || r.Host != "lab.test" || r.URL.RawQuery != "a=b" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		r.URL.Path = "/"
		m.ServeHTTP(w, r)
	})
	return m
}

// start serves on a port of 127.0.0.1, over TLS if there is a configuration for it, and
// returns the port.
func start(t testing.TB, secure *tls.Config) string {
	t.Helper()
	s := httptest.NewUnstartedServer(service())
	if s.TLS = secure; secure != nil {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return port
}

// raw makes the handshake and then sends bytes, whatever they are. It waits until the
// client goes away.
func raw(t testing.TB, bytes string) string {
	t.Helper()
	return answering(t, func(key string) string {
		return "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n" +
			"Sec-WebSocket-Accept: " + acceptOf(key) + "\r\n\r\n" + bytes
	})
}

// answering answers a handshake with what answer makes of its key.
func answering(t testing.TB, answer func(key string) string) string {
	t.Helper()
	return lab.Serve(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		q, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = fmt.Fprint(c, answer(q.Header.Get("Sec-WebSocket-Key")))
		_, _ = r.WriteTo(io.Discard)
	})
}

// TestMain makes this program a server of its own when it is called as one.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != "serve" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, http.ListenAndServe("127.0.0.1:"+os.Args[2], service()))
	os.Exit(1)
}
