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

// The ports of FreeAddress are a range of that many ports, from firstPort, beginning with a random one.
const firstPort, ports = 10_000, 20_000

var (
	begin   = rand.Uint32N(ports)
	claimed atomic.Uint32 // number of ports that were tried
	claims  sync.Map      // abstract sockets by address: they reserve it among test programs while this one runs
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

// FindAddress returns an address of this machine without a listener, a new one each time, also across test programs. Its port is
// not in the range that the system assigns to connections and to listeners on port 0, so it stays free for a while.
func FindAddress() (address string, err error) {
	for range 100 {
		address = fmt.Sprint("127.0.0.1:", firstPort+(begin+claimed.Add(1))%ports)
		var l net.Listener
		if runtime.GOOS == "linux" {
			claim, err := net.Listen("unix", "@sonde-test-"+address)
			if err != nil { // another program has claimed it
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

// Start starts a gateway, which is killed when the test ends. If the gateway is a program in PATH, and not a path, the test runs
// only in .ci/run.
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

// Output returns the output of the gateway so far.
func (p *Process) Output() string { return p.out.String() }

// Kill kills the gateway with SIGKILL.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// Stop stops the gateway with SIGTERM, which also stops its workers.
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

// CodeBlock returns the first code block of a page that has a given language and contains a text.
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

// Load sends requests until Stop.
type Load struct {
	stop    context.CancelFunc
	keep    bool // clients keep their connections
	ended   sync.WaitGroup
	done    atomic.Int64
	each    [clients]atomic.Int64 // finished requests, by client
	mu      sync.Mutex
	served  map[string]int
	failed  int
	failure string
}

// clients is the number of concurrent requests.
const clients = 8

// NewLoad sends requests to the gateway at a Unix socket, each on its own connection.
func NewLoad(path string) *Load { return newLoad(path, false) }

// NewKeptLoad is like NewLoad for clients that keep their connections. They retry once if the gateway closes a connection without a
// response, even a new one: Caddy may do that when it is reloaded.
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

// Pass waits until that many more requests have finished. It waits as long as any of them finish, however slow the machine.
func (l *Load) Pass(t testing.TB, requests int) {
	t.Helper()
	for last := l.done.Load() + int64(requests); l.done.Load() < last; {
		next := min(l.done.Load()+clients, last)
		testsync.Until(t, "requests to end", func() bool { return l.done.Load() >= next })
	}
}

// Settle waits until each client has made a complete request: clients that keep connections then have one.
func (l *Load) Settle(t testing.TB) {
	t.Helper()
	for i := range l.each {
		last := l.each[i].Load() + 2
		testsync.Until(t, "requests of each client", func() bool { return l.each[i].Load() >= last })
	}
}

// Take returns how many requests each backend has served and how many have failed since the last call, and the error of one of
// them.
func (l *Load) Take() (served map[string]int, failed int, failure string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	served, failed, failure = l.served, l.failed, l.failure
	l.served, l.failed, l.failure = map[string]int{}, 0, ""
	return served, failed, failure
}

// Stop stops the requests.
func (l *Load) Stop() {
	l.stop()
	l.ended.Wait()
}
