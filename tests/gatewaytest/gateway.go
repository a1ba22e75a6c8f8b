package gatewaytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// The ports of FreeAddress: as many as ports, from firstPort, beginning with a random one.
const firstPort, ports = 10_000, 20_000

var (
	begin   = rand.Uint32N(ports)
	claimed atomic.Uint32 // how many were tried
	claims  sync.Map      // abstract sockets, by address: while this program runs, no other program of tests has the address
)

// FreeAddress is FindAddress for a test.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, err := FindAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// FreePort returns the port of FreeAddress.
func FreePort(t testing.TB) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(FreeAddress(t))
	return port
}

// FindAddress returns an address of this machine without a listener, another one each time, also in other programs of tests. Its port
// is none of those that the system gives to others, for connections and for listeners on port 0: it stays free for a while.
func FindAddress() (address string, err error) {
	for range 100 {
		address = fmt.Sprint("127.0.0.1:", firstPort+(begin+claimed.Add(1))%ports)
		var l net.Listener
		if runtime.GOOS == "linux" {
			claim, err := net.Listen("unix", "@sonde-test-"+address)
			if err != nil { // it is another program's
				continue
			}
			claims.Store(address, claim)
		}
		if l, err = net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", err
}

// Process is a gateway's process.
type Process struct {
	t     testing.TB
	words []string
	ready func() bool
	cmd   *exec.Cmd
	out   testsync.Buffer
}

// Start starts a gateway, which ends with the test. A test whose gateway is a program on PATH,
// and not a path, stands in .ci/run.
func Start(t testing.TB, ready func() bool, words ...string) *Process {
	t.Helper()
	if filepath.Base(words[0]) == words[0] {
		tier.Needs(t, words[0])
	}
	p := &Process{t: t, words: words, ready: ready}
	p.Start()
	t.Cleanup(p.Kill)
	return p
}

// Start starts the gateway again after Kill, and waits until it is ready.
func (p *Process) Start() {
	p.t.Helper()
	p.cmd = exec.Command(p.words[0], p.words[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	for end := time.Now().Add(testsync.Timeout); !p.ready(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("%s does not become ready:\n%s", p.words[0], p.out.String())
		}
	}
}

// Output returns what the gateway has written so far.
func (p *Process) Output() string { return p.out.String() }

// Kill ends the gateway with SIGKILL.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// Stop ends the gateway with SIGTERM, which also ends its workers.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// Accepts returns a function that reports whether a Unix socket accepts connections.
func Accepts(path string) func() bool {
	return func() bool {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
}

// CodeBlock returns the code block of a page that has a language and contains a text.
func CodeBlock(t testing.TB, page, language, containing string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split(string(text), "```") {
		if code, ok := strings.CutPrefix(part, language+"\n"); ok && i%2 == 1 && strings.Contains(code, containing) {
			return code
		}
	}
	t.Fatalf("%s has no block of %s with %q", page, language, containing)
	return ""
}

// WriteFile writes a file of a test, and returns its path.
func WriteFile(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Load makes requests until Stop.
type Load struct {
	stop    context.CancelFunc
	keep    bool // clients keep their connections
	ended   sync.WaitGroup
	done    atomic.Int64
	each    [clients]atomic.Int64 // done, by client
	mu      sync.Mutex
	served  map[string]int
	failed  int
	failure string
}

// clients are how many requests there are at once.
const clients = 8

// NewLoad makes requests to the gateway at a Unix socket, each on a connection of its own.
func NewLoad(path string) *Load { return newLoad(path, false) }

// NewKeptLoad is like NewLoad for clients that keep their connections. They try again if the gateway closes one without an
// answer, also a new one: Caddy may do that when it is loaded again.
func NewKeptLoad(path string) *Load { return newLoad(path, true) }

func newLoad(path string, keep bool) *Load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{stop: cancel, keep: keep, served: map[string]int{}}
	for i := range clients {
		client := &http.Client{Timeout: testsync.Timeout, Transport: &http.Transport{
			DisableKeepAlives: !keep,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", path)
			},
		}}
		l.ended.Go(func() {
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				l.request(client)
				l.each[i].Add(1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	return l
}

func (l *Load) request(client *http.Client) {
	defer l.done.Add(1)
	answer, err := client.Get("http://gateway/")
	if l.keep && errors.Is(err, io.EOF) {
		answer, err = client.Get("http://gateway/")
	}
	failure, by := "", ""
	if err != nil {
		failure = err.Error()
	} else {
		text, readErr := io.ReadAll(answer.Body)
		answer.Body.Close()
		if by = string(bytes.TrimSpace(text)); answer.StatusCode != http.StatusOK || readErr != nil {
			failure = fmt.Sprintf("status %d: %.80q, %v", answer.StatusCode, text, readErr)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if failure != "" {
		l.failed++
		l.failure = failure
		return
	}
	l.served[by]++
}

// Pass waits until so many further requests have ended. However slow the machine is, they take
// their time as long as some end.
func (l *Load) Pass(t testing.TB, requests int) {
	t.Helper()
	for last := l.done.Load() + int64(requests); l.done.Load() < last; {
		next := min(l.done.Load()+clients, last)
		testsync.Until(t, "requests to end", func() bool { return l.done.Load() >= next })
	}
}

// Settle waits until each client has made a request from its beginning to its end: those that
// keep connections have one then.
func (l *Load) Settle(t testing.TB) {
	t.Helper()
	for i := range l.each {
		last := l.each[i].Load() + 2
		testsync.Until(t, "requests of each client", func() bool { return l.each[i].Load() >= last })
	}
}

// Take returns who has answered since it was called last, how many requests have failed, and
// how one of them has.
func (l *Load) Take() (served map[string]int, failed int, failure string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	served, failed, failure = l.served, l.failed, l.failure
	l.served, l.failed, l.failure = map[string]int{}, 0, ""
	return served, failed, failure
}

// Stop ends the requests.
func (l *Load) Stop() {
	l.stop()
	l.ended.Wait()
}
