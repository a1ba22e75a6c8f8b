package gatewaytest

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// Backend is a server behind a gateway. It responds with its name.
type Backend struct {
	Name    string
	Address string
	Hits    atomic.Int64 // requests so far

	hung    atomic.Pointer[chan struct{}] // nil unless it hangs
	mu      sync.Mutex
	server  *http.Server
	release func()
}

// Backends starts servers. They are stopped when the test ends.
func Backends(t testing.TB, names ...string) []*Backend {
	t.Helper()
	var all []*Backend
	for _, name := range names {
		b := &Backend{Name: name, Address: "127.0.0.1:0"}
		b.Start(t)
		t.Cleanup(func() { b.Hang(false); b.Kill() })
		all = append(all, b)
	}
	return all
}

// Start starts the server, at the same address after Kill.
func (b *Backend) Start(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", b.Address)
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Address = l.Addr().String()
	b.server = &http.Server{Handler: b}
	go func(s *http.Server) { _ = s.Serve(l) }(b.server)
}

// Kill stops the server and closes its connections, without responding to requests in progress.
func (b *Backend) Kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.server.Close()
}

// Hang makes the server accept requests without responding, until it is called with false.
func (b *Backend) Hang(hangs bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.release != nil {
		b.hung.Store(nil)
		b.release()
		b.release = nil
	}
	if hangs {
		end := make(chan struct{})
		b.hung.Store(&end)
		b.release = func() { close(end) }
	}
}

// ServeHTTP implements http.Handler.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.Hits.Add(1)
	if end := b.hung.Load(); end != nil {
		select {
		case <-*end:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("X-Backend", b.Name)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(b.Name))
}
