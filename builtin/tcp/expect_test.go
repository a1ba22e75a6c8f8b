package tcpprobe_test

import (
	"io"
	"net"
	"strings"
	"testing"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// after sends answer once data has arrived, and then calls the functions in rest.
func after(answer string, rest ...func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		conn.Read(make([]byte, 16))
		io.WriteString(conn, answer)
		for _, f := range rest {
			f(conn)
		}
	}
}

// stay keeps the connection open until the probe closes it.
func stay(conn net.Conn) { io.Copy(io.Discard, conn) }

func send(text string) func(net.Conn) {
	return func(conn net.Conn) { io.WriteString(conn, text) }
}

func reset(conn net.Conn) { conn.(*net.TCPConn).SetLinger(0) }

// drip sends single bytes until the probe closes the connection.
func drip(conn net.Conn) {
	conn.(*net.TCPConn).SetNoDelay(true)
	for err := error(nil); err == nil; {
		_, err = io.WriteString(conn, "x")
	}
}

func TestTheResponseMustMatch(t *testing.T) {
	const most = probe.MaxDetail
	tests := map[string]struct {
		config  tcpprobe.Config
		serve   func(net.Conn)
		outcome probe.Outcome
		reason  probe.Reason
	}{
		"text that comes":           {tcpprobe.Config{Expect: "PONG"}, after("+PONG\r\n", stay), probe.Success, ""},
		"text in two pieces":        {tcpprobe.Config{Expect: "PONG"}, after("+PO", send("NG"), stay), probe.Success, ""},
		"text at the end":           {tcpprobe.Config{Expect: "PONG"}, after("PONG"), probe.Success, ""},
		"another text":              {tcpprobe.Config{Expect: "PONG"}, after("-ERR"), probe.Failure, probe.ReasonTCPExpect},
		"hexadecimal digits":        {tcpprobe.Config{ExpectHex: "50 4f 4E47"}, after("PONG", stay), probe.Success, ""},
		"other hexadecimal digits":  {tcpprobe.Config{ExpectHex: "00"}, after("PONG"), probe.Failure, probe.ReasonTCPExpect},
		"a regex that matches":      {tcpprobe.Config{ExpectRegex: `^\+P.NG`}, after("+PONG", stay), probe.Success, ""},
		"a regex that does not":     {tcpprobe.Config{ExpectRegex: `^P.NG`}, after("+PONG"), probe.Failure, probe.ReasonTCPExpect},
		"nothing, and a close":      {tcpprobe.Config{Expect: "PONG"}, after(""), probe.Failure, probe.ReasonTCPClosed},
		"nothing, and a reset":      {tcpprobe.Config{Expect: "PONG"}, after("", reset), probe.Failure, probe.ReasonTCPReset},
		"text at the bound":         {tcpprobe.Config{Expect: "ok"}, after(strings.Repeat("x", most-2)+"ok", stay), probe.Success, ""},
		"text over the bound":       {tcpprobe.Config{Expect: "ok"}, after(strings.Repeat("x", most-1)+"ok", stay), probe.Failure, probe.ReasonTCPExpect},
		"an endless answer, slowly": {tcpprobe.Config{Expect: "ok"}, drip, probe.Failure, probe.ReasonTCPExpect},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.config.Port, test.config.Send = "db", "PING"
			got := attempt(t, test.config, serveTCP(t, test.serve), plenty)
			if name == "an endless answer, slowly" && got.Reason == probe.ReasonTCPReset {
				t.Skip("the server saw its end first")
			}
			wantResult(t, got, test.outcome, test.reason)
			if test.outcome == probe.Success && got.Timings.FirstByte <= 0 {
				t.Errorf("got the timings %+v", got.Timings)
			}
		})
	}
}

func TestALateResponseIsATimeout(t *testing.T) {
	tests := map[string]func(net.Conn){
		"nothing comes":   after("", stay),
		"a part of it":    after("+PO", stay),
		"a connect alone": stay,
	}
	for name, answer := range tests {
		t.Run(name, func(t *testing.T) {
			got := attempt(t, tcpprobe.Config{Port: "db", Expect: "PONG"}, serveTCP(t, answer), short)
			wantResult(t, got, probe.Failure, probe.ReasonTCPTimeout)
		})
	}
}

func TestTheConfiguredBytesAreSent(t *testing.T) {
	for want, c := range map[string]tcpprobe.Config{
		"PING\r\n":     {Send: "PING\r\n"},
		"\x00\x01\xff": {SendHex: "00 01 FF"},
	} {
		got := make(chan string, 1)
		target := serveTCP(t, func(conn net.Conn) {
			read, _ := io.ReadAll(conn)
			got <- string(read)
		})
		c.Port = "db"
		wantResult(t, attempt(t, c, target, plenty), probe.Success, "")
		if got := <-got; got != want {
			t.Errorf("the server got %q, want %q", got, want)
		}
	}
}

func TestSendingThatBlocksIsATimeout(t *testing.T) {
	tier.Slow(t)
	listener := listen(t, "tcp", "127.0.0.1:0") // it reads nothing
	c := tcpprobe.Config{Port: "db", Send: strings.Repeat("x", 64<<20)}
	wantResult(t, attempt(t, c, targetOf(listener.Addr()), short), probe.Failure, probe.ReasonTCPTimeout)
}

func TestNoResultContainsTheResponse(t *testing.T) {
	got := attempt(t, tcpprobe.Config{Port: "db", Send: "x", Expect: "PONG"}, serveTCP(t, after("hunter2")), plenty)
	if strings.Contains(got.Detail, "hunter2") {
		t.Errorf("the detail tells the answer: %q", got.Detail)
	}
}
