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

// talk is the behaviour of a server on a connection after the handshake.
type talk func(ctx context.Context, c *websocket.Conn) error

// echo sends back all messages, and replies to pings.
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

// says returns a talk that first sends messages.
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

// pings sends a ping, and waits for the pong before it sends a message.
func pings(ctx context.Context, c *websocket.Conn) error {
	ctx = c.CloseRead(ctx) // reads the pong
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

// service serves each kind of conversation on a separate path.
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
			_ = do(r.Context(), c) // it ends when the client disconnects
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

// start serves on a port of 127.0.0.1, over TLS if secure is not nil, and returns the port.
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

// raw starts a server that performs the handshake, sends arbitrary bytes, and waits until the
// client disconnects.
func raw(t testing.TB, bytes string) string {
	t.Helper()
	return answering(t, func(key string) string {
		return "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n" +
			"Sec-WebSocket-Accept: " + acceptOf(key) + "\r\n\r\n" + bytes
	})
}

// answering starts a server that responds to a handshake with the result of answer for its key.
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

// TestMain runs this program as a server if its first argument is serve.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != "serve" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, http.ListenAndServe("127.0.0.1:"+os.Args[2], service()))
	os.Exit(1)
}
