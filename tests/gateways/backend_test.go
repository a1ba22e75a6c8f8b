//go:build linux

package gateways

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Environment variables of a backend's process.
const (
	nameVariable    = "SONDE_LAB_BACKEND" // its name, which is its response
	requestVariable = "SONDE_LAB_REQUESTS"
	healthVariable  = "SONDE_LAB_HEALTH" // addresses for requests, and for probes and the test
)

// lameDuck is how long a terminating backend must have received no requests before it exits.
const lameDuck = 500 * time.Millisecond

// server is a backend in its own process.
type server struct {
	name        string
	ready       atomic.Int64 // status of responses to readiness probes
	live        atomic.Int64 // status of responses to liveness probes
	hits        atomic.Int64
	active      atomic.Int64 // requests in progress
	slow        atomic.Int64 // those that end with the backend, or by set
	lastRequest atomic.Int64 // when the last one began, in nanoseconds
	terminating chan struct{}
	noneIsSlow  chan struct{} // closed by set
	callsAreCut atomic.Bool   // responses to calls begin, and are cut off when the backend exits

	heldMu sync.Mutex    // guards held
	held   chan struct{} // closed when readiness probes get responses again; nil if they do
}

// serveBackend serves until SIGTERM, and then for as long as requests arrive.
func serveBackend() int {
	s := &server{name: os.Getenv(nameVariable), terminating: make(chan struct{}), noneIsSlow: make(chan struct{})}
	s.ready.Store(http.StatusOK)
	s.live.Store(http.StatusOK)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	health := http.NewServeMux()
	health.HandleFunc("/ready", func(w http.ResponseWriter, r *http.Request) { s.wait(r.Context()); s.answer(w, &s.ready) })
	health.HandleFunc("/live", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, &s.live) })
	health.HandleFunc("/set", s.set)
	health.HandleFunc("/hits", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s.hits.Load()) })
	health.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s.slow.Load()) })
	traffic := http.NewServeMux()
	traffic.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		defer s.begin()()
		fmt.Fprint(w, s.name)
	})
	traffic.HandleFunc("/slow", s.answerSlowly)
	traffic.HandleFunc(callPath, s.answerCall)
	server, all := &http.Server{Handler: traffic, Protocols: new(http.Protocols)}, listen(os.Getenv(requestVariable))
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(all) }()
	probes := listen(os.Getenv(healthVariable))
	go func() { _ = http.Serve(probes, health) }()
	<-signals
	close(s.terminating)
	for s.active.Load() > 0 || time.Since(time.Unix(0, s.lastRequest.Load())) < lameDuck {
		time.Sleep(lameDuck / 10)
	}
	_ = server.Shutdown(context.Background())
	return 0
}

// listen listens at an address as soon as it is free.
func listen(address string) net.Listener {
	for {
		l, err := net.Listen("tcp", address)
		if err == nil {
			return l
		}
		fmt.Fprintln(os.Stderr, err)
		time.Sleep(lameDuck / 10)
	}
}

// begin records the beginning of a request, and returns a function that records its end.
func (s *server) begin() (end func()) {
	s.hits.Add(1)
	s.active.Add(1)
	s.lastRequest.Store(time.Now().UnixNano())
	return func() { s.active.Add(-1) }
}

// callPath is the path of the lab's gRPC calls.
const callPath = "/grpc.health.v1.Health/Check"

// answerCall responds to a call with an empty message, and with its name as metadata. While calls are cut, it only begins the
// response.
func (s *server) answerCall(w http.ResponseWriter, r *http.Request) {
	defer s.begin()()
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	w.Header().Set("Backend", s.name)
	if s.callsAreCut.Load() {
		_ = http.NewResponseController(w).Flush()
		s.slow.Add(1)
		defer s.slow.Add(-1)
		<-r.Context().Done()
		return
	}
	_, _ = w.Write(make([]byte, 5)) // not compressed, empty
	w.Header().Set("Grpc-Status", "0")
}

// answerSlowly begins a response, and continues it until the backend terminates.
func (s *server) answerSlowly(w http.ResponseWriter, r *http.Request) {
	defer s.begin()()
	s.slow.Add(1)
	defer s.slow.Add(-1)
	fmt.Fprint(w, s.name)
	for goOn := time.NewTicker(lameDuck / 10); ; {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-s.terminating:
			return
		case <-s.noneIsSlow:
			return
		case <-r.Context().Done():
			return
		case <-goOn.C:
			fmt.Fprint(w, " ")
		}
	}
}

func (s *server) answer(w http.ResponseWriter, status *atomic.Int64) {
	w.Header().Set("Location", "http://elsewhere.invalid/") // for a redirect, which is a warning
	w.WriteHeader(int(status.Load()))
}

// wait waits while readiness probes get no responses.
func (s *server) wait(ctx context.Context) {
	s.heldMu.Lock()
	held := s.held
	s.heldMu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
		}
	}
}

// set changes how the backend responds: ready and live set the status for probes; held=true delays the responses to readiness
// probes until held=false; slow=end ends slow responses; calls=cut makes calls get only the beginning of a response.
func (s *server) set(_ http.ResponseWriter, r *http.Request) {
	for name, status := range map[string]*atomic.Int64{"ready": &s.ready, "live": &s.live} {
		if n, err := strconv.Atoi(r.FormValue(name)); err == nil {
			status.Store(int64(n))
		}
	}
	if r.FormValue("slow") == "end" {
		close(s.noneIsSlow)
	}
	if r.FormValue("calls") == "cut" {
		s.callsAreCut.Store(true)
	}
	s.heldMu.Lock()
	defer s.heldMu.Unlock()
	switch held := r.FormValue("held"); {
	case held == "true" && s.held == nil:
		s.held = make(chan struct{})
	case held == "false" && s.held != nil:
		close(s.held)
		s.held = nil
	}
}

// backend is a backend, as the test sees it.
type backend struct {
	t        *testing.T
	name     string
	requests string // address for requests
	health   string // address for probes
	cmd      *exec.Cmd
}

// start starts the backend, and waits until it responds.
func (b *backend) start() {
	b.t.Helper()
	b.cmd = exec.Command(os.Args[0])
	b.cmd.Env = append(os.Environ(), b.environment()...)
	b.cmd.Stderr = os.Stderr
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.await()
}

func (b *backend) environment() []string {
	return []string{nameVariable + "=" + b.name, requestVariable + "=" + b.requests, healthVariable + "=" + b.health}
}

// await waits until the backend responds. It accepts requests before it responds to probes.
func (b *backend) await() {
	b.t.Helper()
	until(b.t, "an answer of "+b.name, func() bool {
		answer, err := http.Get("http://" + b.health + "/live")
		if err == nil {
			answer.Body.Close()
		}
		return err == nil
	})
}

// kill kills the backend with SIGKILL, if it is running.
func (b *backend) kill() {
	if b.cmd != nil {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
		b.cmd = nil
	}
}

// finish stops the backend with SIGTERM. It first responds to the requests in progress.
func (b *backend) finish() {
	b.signal(syscall.SIGTERM)
	if err := b.cmd.Wait(); err != nil {
		b.t.Errorf("%s exits: %v", b.name, err)
	}
	b.cmd = nil
}

func (b *backend) signal(s syscall.Signal) {
	b.t.Helper()
	if err := b.cmd.Process.Signal(s); err != nil {
		b.t.Fatal(err)
	}
}

// set changes how the backend responds, for example with "ready=503".
func (b *backend) set(what string) {
	b.t.Helper()
	answer, err := http.Get("http://" + b.health + "/set?" + what)
	if err != nil {
		b.t.Fatal(err)
	}
	answer.Body.Close()
}

// number returns a counter of the backend: hits, the requests since its process started, or slow, the slow ones in progress.
func (b *backend) number(of string) (n int) {
	b.t.Helper()
	answer, err := http.Get("http://" + b.health + "/" + of)
	if err == nil {
		_, err = fmt.Fscan(answer.Body, &n)
		answer.Body.Close()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}
