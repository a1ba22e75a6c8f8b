package gatewaytest

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// Deaf are clients of a gateway that read only the beginning of a response.
type Deaf struct {
	t     testing.TB
	conns []net.Conn
}

// Ask makes n clients send a request, in HTTP/1.1 format, to a gateway at a URL. Their connections are closed when the test ends.
func Ask(t testing.TB, n int, url, request string) *Deaf {
	t.Helper()
	small := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		// With a small receive buffer, the rest of the response stays in the gateway.
		if failed := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) }); failed != nil {
			return failed
		}
		return err
	}}
	d := &Deaf{t: t}
	for range n {
		conn, err := small.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		d.conns = append(d.conns, conn)
	}
	return d
}

// Answered waits until all clients have the status of a response, and returns the number of those whose status is not 200.
func (d *Deaf) Answered() (others int) {
	d.t.Helper()
	var mu sync.Mutex
	var reading sync.WaitGroup
	for _, conn := range d.conns {
		reading.Go(func() {
			_ = conn.SetReadDeadline(time.Now().Add(testsync.Timeout))
			line := make([]byte, len("HTTP/1.1 200"))
			_, err := io.ReadFull(conn, line)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				d.t.Errorf("a client has no answer: %v", err)
			}
			if !bytes.HasSuffix(line, []byte("200")) {
				others++
			}
		})
	}
	reading.Wait()
	return others
}

// LiveHeap returns the number of heap bytes in use.
func LiveHeap() int64 {
	runtime.GC()
	runtime.GC() // pools keep objects for one collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Members returns n addresses for New.
func Members(n int) map[string]string {
	all := make(map[string]string, n)
	for i := range n {
		all["target-"+string(rune('a'+i%26))+"-"+net.IPv4(10, byte(i>>16), byte(i>>8), byte(i)).String()] = net.IPv4(10, byte(i>>16), byte(i>>8), byte(i)).String() + ":8080"
	}
	return all
}
