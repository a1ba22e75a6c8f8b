package oracle

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// path returns the path of a scripted http probe, which identifies the probe.
func path(at probeKey) string {
	return fmt.Sprintf("/%s/%s/%v", at.script, at.container, at.kind)
}

func probeKeyOf(path string) (at probeKey, ok bool) {
	parts := strings.Split(path, "/")
	if len(parts) != 4 || at.kind.UnmarshalText([]byte(parts[3])) != nil {
		return probeKey{}, false
	}
	at.script, at.container = parts[1], parts[2]
	return at, true
}

// serve starts a server that responds according to the letters of answer, and returns its port. It is stopped when the test ends.
func serve(t testing.TB, answer func(probeKey) byte) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if at, ok := probeKeyOf(r.URL.Path); ok {
			reply(w, r, answer(at))
		}
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
	})
	return listener.Addr().(*net.TCPAddr).Port
}

// reply responds to a request according to a letter. Without a letter, it cuts the body short, which the kubelet does not count
// (K71).
func reply(w http.ResponseWriter, r *http.Request, letter byte) {
	switch letter {
	case Success:
		io.WriteString(w, "ok")
	case Failure:
		w.WriteHeader(http.StatusServiceUnavailable)
	case Warning:
		w.Header().Set("Location", "http://elsewhere.invalid/")
		w.WriteHeader(http.StatusFound)
	case Late:
		<-r.Context().Done()
	case Slow:
		wait(r.Context(), slowness)
		io.WriteString(w, "ok")
	case Closed:
		panic(http.ErrAbortHandler)
	default:
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "the begin")
		_ = http.NewResponseController(w).Flush()
		if letter == Stalled {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}
}

// slowness is the duration of a Slow answer: more than the shortest period.
const slowness = 1600 * time.Millisecond

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// tcpPort is a TCP port that is open or closed. It is reserved while closed.
type tcpPort struct {
	addr    *net.TCPAddr
	reserve int // a socket that is bound to the port and never listens

	mu       sync.Mutex
	listener net.Listener // nil: closed
	serving  sync.WaitGroup
	entered  func() // called for each connection
}

// newPort returns a closed port. It is released when the test ends.
func newPort(t testing.TB, entered func()) *tcpPort {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	bound := name.(*syscall.SockaddrInet4)
	d := &tcpPort{addr: &net.TCPAddr{IP: bound.Addr[:], Port: bound.Port}, reserve: fd, entered: entered}
	t.Cleanup(func() {
		_ = d.set(false)
		syscall.Close(fd)
	})
	return d
}

func (d *tcpPort) port() string { return strconv.Itoa(d.addr.Port) }

// set opens or closes the port.
func (d *tcpPort) set(open bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case open && d.listener == nil:
		listener, err := net.ListenTCP("tcp", d.addr)
		if err != nil {
			return err
		}
		d.listener = listener
		d.serving.Go(func() { d.accept(listener) })
	case !open && d.listener != nil:
		d.listener.Close()
		d.serving.Wait()
		d.listener = nil
	}
	return nil
}

func (d *tcpPort) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		conn.Close()
		d.entered()
	}
}
