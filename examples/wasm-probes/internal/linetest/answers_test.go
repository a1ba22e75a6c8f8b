package linetest

import (
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/wasmhost"
)

// check makes one attempt and checks its result. If a busy machine reached the timeout too early, it repeats the
// attempt with a longer timeout.
func check(t *testing.T, h *wasmhost.Handler, target probe.Target, timeout time.Duration, w want) {
	t.Helper()
	var got probe.Result
	testsync.Longer(t, string(w.reason), timeout, testsync.Timeout, func(timeout time.Duration) bool {
		got = attempt(t, h, target, timeout)
		return got.Reason == w.reason || timeout >= plenty || !lab.MayBeEarly(got.Outcome == probe.Unknown, string(got.Reason))
	})
	if got.Outcome != w.outcome || got.Reason != w.reason || !strings.Contains(got.Detail, w.detail) {
		t.Errorf("got %v %q: %s\nwant %v %q: %s", got.Outcome, got.Reason, got.Detail, w.outcome, w.reason, w.detail)
	}
}

func testAnswers(t *testing.T, p *wasmhost.Plugin) {
	hello := says("220 ready\r\n", func(line string) string { return "250 " + line + "\r\n" })
	cases := []struct {
		name   string
		server func(net.Conn)
		with   settings
		want   want
	}{
		{"any line", always("+PONG\r\n"), settings{"send": "PING"}, want{probe.Success, "", "+PONG"}},
		{"the right beginning", always("+PONG\r\n"), settings{"send": "PING", "expect": "+PO"}, want{probe.Success, "", "+PONG"}},
		{"the whole line", always("+PONG\n"), settings{"send": "PING", "expect": "+PONG"}, want{probe.Success, "", "+PONG"}},
		{"an empty line", always("\n"), settings{"send": "PING"}, want{probe.Success, "", ""}},
		{"something in it", always("role:master,up\n"), settings{"send": "INFO", "contains": "master"}, want{probe.Success, "", "role"}},
		{"byte by byte", drips("+PONG\r\n"), settings{"send": "PING", "expect": "+PONG"}, want{probe.Success, "", "+PONG"}},
		{"a last line", closes("+BYE\r\n"), settings{"send": "QUIT", "expect": "+BYE"}, want{probe.Success, "", "+BYE"}},
		{"a greeting", hello, settings{"greeting": "220"}, want{probe.Success, "", "220 ready"}},
		{"a greeting and an answer", hello, settings{"greeting": "220 ", "send": "NOOP", "expect": "250 NOOP"}, want{probe.Success, "", "250 NOOP"}},
		{"a connection only", mute, settings{}, want{probe.Success, "", ""}},
		{"the wrong beginning", always("-LOADING\r\n"), settings{"send": "PING", "expect": "+PONG"}, want{probe.Failure, "line.expect", "-LOADING"}},
		{"less than the beginning", always("+PO\r\n"), settings{"send": "PING", "expect": "+PONG"}, want{probe.Failure, "line.expect", "+PO"}},
		{"nothing of it", always("role:replica\n"), settings{"send": "INFO", "contains": "master"}, want{probe.Failure, "line.expect", "master"}},
		{"another greeting", hello, settings{"greeting": "200"}, want{probe.Failure, "line.greeting", "220 ready"}},
		{"bytes that are no text", always("\xff\x00\x1b[31m\n"), settings{"send": "PING", "expect": "+"}, want{probe.Failure, "line.expect", ""}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.with["port"] = "line"
			check(t, handler(t, p, c.with), serve(t, c.server), plenty, c.want)
		})
	}
}

func testErrors(t *testing.T, p *wasmhost.Plugin) {
	const soon = 100 * time.Millisecond
	cases := []struct {
		name    string
		server  func(net.Conn)
		with    settings
		timeout time.Duration
		want    want
	}{
		{"it closes", closes(""), settings{"send": "PING"}, plenty, want{probe.Failure, "tcp.closed", "closed"}},
		{"it closes within a line", closes("+PO"), settings{"send": "PING"}, plenty, want{probe.Failure, "tcp.closed", "closed"}},
		{"no answer in the attempt", mute, settings{"send": "PING"}, soon, want{probe.Failure, "line.timeout", ""}},
		{"no answer in its time", mute, settings{"send": "PING", "answer_timeout": soon}, plenty, want{probe.Failure, "line.timeout", ""}},
		{"no greeting", mute, settings{"greeting": "220", "answer_timeout": soon}, plenty, want{probe.Failure, "line.timeout", ""}},
		{"half a line", drips("+PO"), settings{"send": "PING", "answer_timeout": soon}, plenty, want{probe.Failure, "line.timeout", ""}},
		{"a line without an end", closes(strings.Repeat("x", 1<<16)), settings{"send": "PING"}, plenty, want{probe.Failure, "line.long", "4096"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.with["port"] = "line"
			began := time.Now()
			check(t, handler(t, p, c.with), serve(t, c.server), c.timeout, c.want)
			if took := time.Since(began); took > plenty/2 {
				t.Errorf("it took %v", took)
			}
		})
	}
	t.Run("connection refused", func(t *testing.T) {
		target := probe.Target{Name: "none", Address: "127.0.0.1", Ports: map[string]uint16{"line": 1}}
		check(t, handler(t, p, settings{"port": "line"}), target, plenty, want{probe.Failure, probe.ReasonTCPRefused, "connect: "})
	})
	t.Run("no such port", func(t *testing.T) {
		target := probe.Target{Name: "none", Address: "127.0.0.1"}
		check(t, handler(t, p, settings{"port": "line"}), target, plenty, want{probe.Unknown, probe.ReasonNoPort, "line"})
	})
}

func testTLS(t *testing.T, p *wasmhost.Plugin) {
	pong := always("+PONG\r\n")
	with := func(name string) settings {
		s := settings{"port": "line", "tls": true, "send": "PING", "expect": "+PONG"}
		if name != "" {
			s["server_name"] = name
		}
		return s
	}
	check(t, handler(t, p, with("")), serve(t, mute), 500*time.Millisecond, want{probe.Failure, probe.ReasonTLSTimeout, ""})
	if runtime.GOOS != "linux" {
		t.Skip("only on Linux can a test say which certificates to trust")
	}
	secure := serveTLS(t, pong)
	check(t, handler(t, p, with("")), secure, plenty, want{probe.Success, "", "+PONG"})
	check(t, handler(t, p, with("example.com")), secure, plenty, want{probe.Success, "", "+PONG"})
	check(t, handler(t, p, with("other.test")), secure, plenty, want{probe.Failure, probe.ReasonTLSName, "other.test"})
}
