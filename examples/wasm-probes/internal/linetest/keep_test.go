package linetest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
)

func testSettings(t *testing.T, p *wasmhost.Plugin) {
	cases := []struct {
		field   string
		with    settings
		problem string
	}{
		{"send", settings{"send": "PING\r\nQUIT"}, "must be one line"},
		{"server_name", settings{"tls": true, "server_name": "a\nverify=none"}, "must be one line"},
		{"server_name", settings{"server_name": "example.org"}, "tls"},
		{"expect", settings{"expect": "+PONG"}, "send"},
		{"contains", settings{"contains": "+PONG"}, "send"},
		{"greeting", settings{"greeting": strings.Repeat("x", 5000)}, "4095"},
		{"answer_timeout", settings{"answer_timeout": -plenty}, "negative"},
	}
	for _, c := range cases {
		c.with["port"] = "line"
		_, err := p.New(c.with)
		var wrong *probe.FieldError
		if !errors.As(err, &wrong) || wrong.Field != c.field || !strings.Contains(wrong.Problem, c.problem) {
			t.Errorf("%v was answered by: %v", c.with, err)
		}
	}
}

// testTexts sends texts that JSON escapes, and checks that they come back unchanged.
func testTexts(t *testing.T, p *wasmhost.Plugin) {
	target := serve(t, says("", func(line string) string { return line + "\r\n" }))
	for _, text := range []string{
		"plain", `"quoted"`, `back\slash`, `\u0041`, "tab\tand \b\f", "<&>", "Grüße", "プローブ", "\U0001F600!", "{}[],:", "a\u2028b",
		strings.Repeat(`"\`, 1000), strings.Repeat("ü", 1000), strings.Repeat("x", 4094),
	} {
		h := handler(t, p, settings{"port": "line", "send": text, "expect": text})
		if got := attempt(t, h, target, plenty); got.Outcome != probe.Success {
			t.Errorf("%q: %v %s", text, got.Outcome, got.Detail)
		}
	}
}

// counted is a server that counts its connections and can close them.
type counted struct {
	connections atomic.Int32
	mu          sync.Mutex
	open        []net.Conn
	answer      func(line string) string
}

func (c *counted) serve(conn net.Conn) {
	c.connections.Add(1)
	c.mu.Lock()
	c.open = append(c.open, conn)
	c.mu.Unlock()
	says("220 hello\r\n", c.answer)(conn)
}

// end closes all connections, and returns when the other side has detected that.
func (c *counted) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		conn.Close()
	}
	c.open = nil
}

func testKept(t *testing.T, p *wasmhost.Plugin) {
	server := &counted{answer: func(line string) string { return "+" + line + "\r\n" }}
	target := serve(t, server.serve)
	h := handler(t, p, settings{"port": "line", "greeting": "220", "send": "PING", "expect": "+PING", "keep": true})
	good := want{probe.Success, "", "+PING"}
	for range 3 {
		check(t, h, target, plenty, good)
	}
	if n := server.connections.Load(); n != 1 {
		t.Errorf("3 attempts made %d connections, want 1", n)
	}
	server.end()
	if got := attempt(t, h, target, plenty); got.Outcome != probe.Failure || !strings.HasPrefix(string(got.Reason), "tcp.") {
		t.Errorf("the end of the connection was answered by %v %q: %s", got.Outcome, got.Reason, got.Detail)
	}
	check(t, h, target, plenty, good)
	if n := server.connections.Load(); n != 2 {
		t.Errorf("there were %d connections after its end, want 2", n)
	}
	testOverhang(t, p)
}

// testOverhang uses a server that sends an additional line: the connection cannot be reused, since
// the next response would be a stale one.
func testOverhang(t *testing.T, p *wasmhost.Plugin) {
	server := &counted{answer: func(line string) string { return "+" + line + "\r\n+MORE\r\n" }}
	target := serve(t, server.serve)
	h := handler(t, p, settings{"port": "line", "greeting": "220", "send": "PING", "expect": "+PING", "keep": true})
	for range 2 {
		check(t, h, target, plenty, want{probe.Success, "", "+PING"})
	}
	if n := server.connections.Load(); n != 2 {
		t.Errorf("2 attempts made %d connections, want 2", n)
	}
}

func testChange(t *testing.T, p *wasmhost.Plugin) {
	answers := []string{"primary", "primary", "replica", "replica", strings.Repeat("x", 4000), ""}
	i := 0
	target := serve(t, func(conn net.Conn) {
		bufio.NewReader(conn).ReadString('\n')
		io.WriteString(conn, answers[i]+"\n")
	})
	h := handler(t, p, settings{"port": "line", "send": "ROLE", "warn_on_change": true})
	wants := []want{
		{probe.Success, "", "primary"},
		{probe.Success, "", "primary"},
		{probe.Warning, "line.changed", "primary"},
		{probe.Success, "", "replica"},
		{probe.Warning, "line.changed", "replica"},
		{probe.Warning, "line.changed", "xxx"},
	}
	for i = range answers {
		check(t, h, target, plenty, wants[i])
	}
	other := handler(t, p, settings{"port": "line", "send": "ROLE", "warn_on_change": true})
	i = 0
	check(t, other, target, plenty, want{probe.Success, "", "primary"})
}

// testGrants runs the plugin without the grants and limits that it needs.
func testGrants(t *testing.T, module []byte) {
	none := lab.LoadAs(t, wasmhost.Config{Module: module, Grant: wasmhost.Grant{Dial: []string{}}})
	target := serve(t, always("+PONG\r\n"))
	check(t, handler(t, none, settings{"port": "line", "send": "PING"}), target, plenty, want{probe.Unknown, wasmhost.ReasonGrant, "not granted"})
	few := lab.LoadAs(t, wasmhost.Config{Module: module, Limits: wasmhost.Limits{BytesIn: 10}})
	long := serve(t, always(strings.Repeat("x", 100)+"\r\n"))
	check(t, handler(t, few, settings{"port": "line", "send": "PING"}), long, plenty, want{probe.Unknown, wasmhost.ReasonLimit, "bytes_in"})
}

// testInstances makes many attempts, successful and failing ones, in a single instance: no data of
// an attempt must reach the next one. An instance whose memory has grown is replaced.
func testInstances(t *testing.T, module []byte) {
	p := lab.LoadAs(t, wasmhost.Config{Module: module, Limits: wasmhost.Limits{Instances: 1, Memory: 4 << 20}})
	target := serve(t, says("", func(line string) string { return "you said " + line + "\r\n" }))
	for i := range 200 {
		said := strings.Repeat("x", 1+i*7%4000)
		good := handler(t, p, settings{"port": "line", "send": said, "expect": "you said " + said[:min(len(said), 4000)]})
		check(t, good, target, plenty, want{probe.Success, "", "you said x"})
		if i%10 == 0 {
			bad := handler(t, p, settings{"port": "line", "send": "x", "expect": "no"})
			check(t, bad, target, plenty, want{probe.Failure, "line.expect", "you said x"})
		}
	}
	if s := p.Stats(); s.Instances > 1 || s.Started == s.Attempts {
		t.Errorf("%d instances were started for %d attempts, and %d are left", s.Started, s.Attempts, s.Instances)
	}
}
