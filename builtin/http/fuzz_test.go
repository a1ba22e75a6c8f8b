package httpprobe_test

import (
	"net"
	"testing"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

// Whatever a server sends, the server is judged: a response never results in Unknown, and every attempt ends.
func FuzzAnyAnswerIsJudged(f *testing.F) {
	for _, answer := range []string{
		"",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nok",
		"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\n\r\n",
		"HTTP/1.1 301 Moved\r\nLocation: //\x1b[2J/\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching Protocols\r\n\r\n",
		"HTTP/0.9 \r\n\r\n",
		"HTTP/1.1 999 \xff\r\nA: \x00\r\n\r\n",
	} {
		f.Add([]byte(answer))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		target := serveRaw(t, func(conn *net.TCPConn) {
			skip(conn)
			conn.Write(answer)
		})
		got := attempt(t, httpprobe.Config{Port: "web", BodyContains: "ok"}, target, plenty)
		if got.Outcome == probe.Unknown || got.Reason == probe.ReasonHTTPTimeout {
			t.Errorf("got %+v", got)
		}
		if clean := probe.CleanText(got.Detail, probe.MaxDetail); clean != got.Detail {
			t.Errorf("the detail is not clean: %q", got.Detail)
		}
	})
}
