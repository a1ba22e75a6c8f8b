//go:build linux

package gray

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/dialtest"
)

// listen listens on a port of an address until the test ends.
func listen(t *testing.T, ip string, port int) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, fmt.Sprint(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// serveHTTP serves HTTP until the test ends.
func serveHTTP(t *testing.T, l net.Listener, handler http.Handler) {
	s := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = s.Serve(l) }() // always returns an error
	t.Cleanup(func() { s.Close() })
}

// web serves HTTP on port 80, with the handler healthy, and with faulty after the fault.
func web(healthy, faulty http.HandlerFunc) func(t *testing.T, ip string) (fail func()) {
	return func(t *testing.T, ip string) func() {
		var broken atomic.Bool
		serveHTTP(t, listen(t, ip, 80), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if broken.Load() {
				faulty(w, r)
				return
			}
			healthy(w, r)
		}))
		return func() { broken.Store(true) }
	}
}

// body returns a handler that responds with a body.
func body(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// ok is a healthy handler.
var ok = body(`{"status": "ok", "lag_seconds": 2}`)

// pathFails responds with 500 except on /health.
func pathFails(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/health" {
		http.Error(w, "no connection to the store", http.StatusInternalServerError)
	}
}

// someFail returns a handler that responds to three of ten requests with 500.
func someFail() http.HandlerFunc {
	var requests atomic.Int64
	return func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(3)%10 < 3 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
}

// slow returns a handler that takes a time to respond.
func slow(d time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		<-time.After(d)
		ok(w, r)
	}
}

// behind returns a handler whose lag grows by 10 seconds per second, from the first request on.
func behind() http.HandlerFunc {
	start := sync.OnceValue(time.Now)
	return func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"lag_seconds": %.0f}`, 2+10*time.Since(start()).Seconds())
	}
}

// late responds with a Date one hour in the past.
func late(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
	ok(w, r)
}

// encrypted serves HTTPS. After the fault, the certificate of the authority between root and the server expires in 20 hours.
func encrypted(t *testing.T, ip string, root *dialtest.Authority) (fail func()) {
	const long = 90 * 24 * time.Hour
	var current atomic.Pointer[tls.Certificate]
	use := func(validFor time.Duration) {
		c := root.Intermediate(t, "R3", validFor).Sign(t, long, ip)
		current.Store(&c)
	}
	use(long)
	l := tls.NewListener(listen(t, ip, 443), &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil },
	})
	serveHTTP(t, l, ok)
	return func() { use(20 * time.Hour) }
}

// redis runs Redis. After the fault it refuses to write, because it requires a replica.
func redis(t *testing.T, ip string) (fail func()) {
	c := exec.Command("redis-server", "--bind", ip, "--port", "6379", "--save", "", "--protected-mode", "no", "--dir", t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return func() {
		conn, err := net.Dial("tcp", net.JoinHostPort(ip, "6379"))
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "CONFIG SET min-replicas-to-write 1\r\n")
		if line, err := bufio.NewReader(conn).ReadString('\n'); line != "+OK\r\n" {
			t.Errorf("redis says %q, %v", line, err)
		}
	}
}

// crashing accepts connections. After the fault, all of them are closed every 20 seconds, and none is accepted for 200 ms. The
// function fail returns at the second crash.
func crashing(t *testing.T, ip string) (fail func()) {
	const every, down = 20 * time.Second, 200 * time.Millisecond
	stop := serve(t, ip)
	crash := func() {
		stop()
		<-time.After(down)
		stop = serve(t, ip)
	}
	return func() {
		crash()
		<-time.After(every - down)
		crashed := make(chan struct{})
		go func() {
			for first := true; t.Context().Err() == nil; first = false {
				if first {
					close(crashed)
				}
				crash()
				select {
				case <-time.After(every - down):
				case <-t.Context().Done():
				}
			}
		}()
		<-crashed
	}
}

// serve accepts connections on port 80 and keeps them, until stop is called or the test ends.
func serve(t *testing.T, ip string) (stop func()) {
	l := listen(t, ip, 80)
	s := &http.Server{Handler: ok, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	return func() { s.Close() }
}
