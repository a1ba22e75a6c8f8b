package linetest

import (
	"bufio"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

// serve serves connections until the test ends. The target's port is called "line".
func serve(t *testing.T, answer func(net.Conn)) probe.Target {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, listener, answer)
}

func serveOn(t *testing.T, listener net.Listener, answer func(net.Conn)) probe.Target {
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer conn.Close()
				answer(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		open.Wait()
	})
	at := netip.MustParseAddrPort(listener.Addr().String())
	return probe.Target{Name: "shop/line", Address: at.Addr().String(), Ports: map[string]uint16{"line": at.Port()}}
}

// says returns a server that sends a greeting, and replies to each line with the result of answer.
func says(greeting string, answer func(line string) string) func(net.Conn) {
	return func(conn net.Conn) {
		io.WriteString(conn, greeting)
		for in := bufio.NewScanner(conn); in.Scan(); {
			if _, err := io.WriteString(conn, answer(in.Text())); err != nil {
				return
			}
		}
	}
}

// always returns a server that replies to each line with the same text.
func always(answer string) func(net.Conn) {
	return says("", func(string) string { return answer })
}

// drips returns a server that replies to a line byte by byte.
func drips(answer string) func(net.Conn) {
	return func(conn net.Conn) {
		bufio.NewReader(conn).ReadString('\n')
		for i := range len(answer) {
			if _, err := io.WriteString(conn, answer[i:i+1]); err != nil {
				return
			}
		}
		io.Copy(io.Discard, conn)
	}
}

// closes returns a server that reads a line, sends last and closes the connection.
func closes(last string) func(net.Conn) {
	return func(conn net.Conn) {
		bufio.NewReader(conn).ReadString('\n')
		io.WriteString(conn, last)
	}
}

// mute reads and never responds.
func mute(conn net.Conn) { io.Copy(io.Discard, conn) }

// own is the certificate of this package's servers, for 127.0.0.1 and example.com.
var own = sync.OnceValue(func() tls.Certificate {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	return server.TLS.Certificates[0]
})

// trustOwnCertificates makes this process trust the certificate own. The system's certificates are
// read only once, so it must be called before the first handshake.
func trustOwnCertificates(dir string) error {
	file := filepath.Join(dir, "own.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own().Certificate[0]})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	return os.Setenv("SSL_CERT_FILE", file)
}

// serveTLS is like serve, over TLS.
func serveTLS(t *testing.T, answer func(net.Conn)) probe.Target {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{own()}})
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, listener, answer)
}
