//go:build !race

// Under the race detector the interpreter takes minutes to compile.

package embedded

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
)

// spreading is a script that spreads copies of its arguments and of a response over its memory, then waits for a second
// response. Its argument "end" selects how it ends after that.
const spreading = `
def attempt(t):
    c = t.dial("tcp", t.port())
    c.write(t.args["password"] + "\n")
    answer = c.read_line()
    copies = [str(n) + answer + t.args["password"] for n in range(2000)]
    c.read_line()
    if t.args["end"] == "error":
        return copies[answer]
    if t.args["end"] == "memory":
        for n in range(30):
            copies += [str(n) * 1000000 + answer]
    return t.succeed(answer)
`

// The memory of an instance is a mapping of an in-memory file, so all instances' memories can be searched.
func TestASecretOfATargetIsInNoLaterMemoryOfTheInterpreter(t *testing.T) {
	tier.CI(t)
	module, err := Starlark()
	if err != nil {
		t.Skip("the interpreter has not been built: make build")
	}
	limits := wasmhost.Limits{Start: time.Hour} // the machine may be slow
	p, err := wasmhost.Load(wasmhost.Config{Module: module, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	var before []string // texts that no memory may contain any more
	for n, end := range []string{"returns", "error", "memory", "cancelled", "returns"} {
		password, answer := fmt.Sprintf("password-%d-of-a-target", n), fmt.Sprintf("answer-%d-of-a-target", n)
		s := newScriptServer(t, answer)
		made, err := p.New(map[string]any{
			"port": "line", "args": map[string]string{"password": password, "end": end},
			"script": map[string]any{"source": spreading},
		})
		if err == nil {
			err = made.Unchecked()
		}
		if err != nil {
			t.Fatal(err)
		}
		wantInNoMemory(t, "the check of the settings", append(before, password))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan probe.Result, 1)
		go func() { ended <- made.Probe(ctx, s.target) }()
		if got := testsync.Receive(t, "the password", s.received); got != password {
			t.Errorf("got the password %q, want %q", got, password)
		}
		// The script computes after it has read the response. When it waits again, both secrets are in its memory.
		testsync.Until(t, "the secrets in the memory of the attempt", func() bool {
			return countInMemories(t, password) > 1000 && countInMemories(t, answer) > 1000
		})
		wantInNoMemory(t, end, before)
		if end == "cancelled" {
			cancel()
		} else {
			close(s.release)
		}
		result := testsync.Receive(t, "the result", ended)
		cancel()
		if succeeded := result.Outcome == probe.Success; succeeded != (end == "returns") {
			t.Errorf("%s: got %+v", end, result)
		}
		before = append(before, password, answer)
		wantInNoMemory(t, end, before)
		made.Close()
	}
}

// scriptServer sends one line immediately, and a second line when it is released.
type scriptServer struct {
	target   probe.Target
	received chan string
	release  chan struct{}
}

func newScriptServer(t *testing.T, answer string) *scriptServer {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	s := &scriptServer{
		target:   probe.Target{Name: answer, Address: "127.0.0.1", Ports: map[string]uint16{"line": port}},
		received: make(chan string, 1), release: make(chan struct{}),
	}
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		line, _ := bufio.NewReader(conn).ReadString('\n')
		io.WriteString(conn, answer+"\n")
		s.received <- strings.TrimSpace(line)
		select {
		case <-s.release:
			io.WriteString(conn, "\n")
		case <-t.Context().Done():
		}
	}()
	return s
}

func wantInNoMemory(t *testing.T, when string, secrets []string) {
	t.Helper()
	for _, secret := range secrets {
		if n := countInMemories(t, secret); n > 0 {
			t.Errorf("%s: %q is %d times in the memory of instances", when, secret, n)
		}
	}
}

// countInMemories returns how often a text occurs in the memories of this process's instances: in the mappings of their images,
// and in the mappings after those, into which they have grown.
func countInMemories(t *testing.T, text string) (n int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	found, last := 0, uint64(0)
	for line := range strings.Lines(string(maps)) {
		var start, end uint64
		var access string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &start, &end, &access); err != nil {
			t.Fatal(err)
		}
		isImage := strings.Contains(line, "/memfd:sonde-image")
		isGrown := start == last && access == "rw-p" && strings.HasSuffix(line, " 0 \n")
		if last = 0; !isImage && !isGrown {
			continue
		}
		found, last = found+1, end
		content := make([]byte, end-start)
		if _, err := memory.ReadAt(content, int64(start)); err != nil {
			t.Fatal(err)
		}
		n += bytes.Count(content, []byte(text))
	}
	if found == 0 {
		t.Fatalf("no memory of an instance is in\n%s", maps)
	}
	return n
}
