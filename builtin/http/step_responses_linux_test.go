//go:build !386 && !s390x

package httpprobe_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// answer sends a response in pieces after the request has arrived, and closes the connection.
func answer(pieces ...string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		skip(conn)
		for i, piece := range pieces {
			if i > 0 {
				time.Sleep(time.Millisecond) // a slow server, so that the pieces arrive one by one
			}
			io.WriteString(conn, piece)
		}
	}
}

// then runs two functions in sequence.
func then(first, second func(*net.TCPConn)) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		first(conn)
		second(conn)
	}
}

func reset(conn *net.TCPConn) { conn.SetLinger(0) }

// letters returns a string of length n.
func letters(n int) string { return strings.Repeat("x", n) }

const (
	okHead = "HTTP/1.1 200 OK\r\n"
	most   = probe.MaxDetail
)

// plainResponses are responses that are judged in steps.
var plainResponses = map[string]struct {
	config httpprobe.Config
	serve  func(*net.TCPConn)
	late   bool
}{
	"a length":                        {serve: answer(okHead + "Content-Length: 2\r\n\r\nok")},
	"no length":                       {serve: answer(okHead + "\r\nok")},
	"no length, and stalls":           {serve: then(answer(okHead+"\r\nok"), hang), late: true},
	"no length, and very long":        {serve: then(answer(okHead+"\r\n"+letters(most)), hang)},
	"no length, and reset":            {serve: then(answer(okHead+"\r\nok"), reset)},
	"chunks":                          {serve: answer(okHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")},
	"chunks one by one":               {serve: answer(okHead+"transfer-encoding:\tChunked \r\n\r\n", "1\r\no\r\n", "1", "\r\n", "k", "\r", "\n0", "\r\n", "\r", "\n")},
	"chunks that stall":               {serve: then(answer(okHead+"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"), hang), late: true},
	"chunks that break off":           {serve: answer(okHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nok")},
	"chunks that break off at a line": {serve: answer(okHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")},
	"chunks without an end":           {serve: answer(okHead + "Transfer-Encoding: chunked\r\n\r\n0\r\n")},
	"a very long chunk":               {serve: then(answer(okHead+"Transfer-Encoding: chunked\r\n\r\n"+"100000\r\n"+letters(most+100)), hang)},
	"an asserted chunk": {
		config: httpprobe.Config{BodyContains: "look"},
		serve:  answer(okHead + "Transfer-Encoding: chunked\r\n\r\n3\r\nit \r\n4\r\nlook\r\n2\r\ns!\r\n0\r\n\r\n"),
	},
	"text that chunks would hide": {
		config: httpprobe.Config{BodyContains: "look"},
		serve:  answer(okHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nlo\r\n2\r\nok\r\n0\r\n\r\n"),
	},
	"text that is not there": {
		config: httpprobe.Config{BodyContains: "look"},
		serve:  answer(okHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nlo\r\n0\r\n\r\n"),
	},
	"an expression": {
		config: httpprobe.Config{BodyRegex: "^o.$"},
		serve:  answer(okHead + "Content-Length: 2\r\n\r\nok"),
	},
	"a length in pieces":           {serve: answer("HTT", "P/1.", "1 200 OK\r", "\nContent-Len", "gth: 2\r\n", "\r", "\n", "o", "k")},
	"a length that is not kept":    {serve: answer(okHead + "Content-Length: 5\r\n\r\nok")},
	"a length, and stalls":         {serve: then(answer(okHead+"Content-Length: 5\r\n\r\nok"), hang), late: true},
	"a length, and reset":          {serve: then(answer(okHead+"Content-Length: 5\r\n\r\nok"), reset)},
	"more than the length":         {serve: answer(okHead + "Content-Length: 2\r\n\r\nokokok")},
	"a great length":               {serve: then(answer(okHead+"Content-Length: 999999\r\n\r\n"+letters(most)), hang)},
	"no body":                      {serve: answer("HTTP/1.1 204 No Content\r\n\r\n")},
	"no body, whatever the length": {serve: then(answer("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"), hang)},
	"a head alone":                 {config: httpprobe.Config{Method: "HEAD"}, serve: then(answer(okHead+"Content-Length: 5\r\n\r\n"), hang)},
	"options":                      {config: httpprobe.Config{Method: "OPTIONS"}, serve: answer(okHead + "Content-Length: 0\r\n\r\n")},
	"the older version":            {serve: answer("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok")},
	"the older version, unbounded": {serve: answer("HTTP/1.0 200 OK\r\n\r\nok")},
	"no words":                     {serve: answer("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n")},
	"lines' ends of one byte":      {serve: answer("HTTP/1.1 200 OK\nContent-Length: 2\n\nok")},
	"an answer before the answer":  {serve: answer("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"+okHead, "Content-Length: 0\r\n\r\n")},
	"only what comes before":       {serve: answer("HTTP/1.1 100 Continue\r\n\r\n")},
	"unaccepted":                   {serve: answer("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\n")},
	"unaccepted, and stalls":       {serve: then(answer("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\n"), hang), late: true},
	"another status":               {config: httpprobe.Config{Status: []string{"404"}}, serve: answer("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")},
	"a status above all":           {serve: answer("HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n")},
	"closed":                       {serve: answer()},
	"closed in the head":           {serve: answer(okHead + "Content-Length: 0\r\n")},
	"silent":                       {serve: hang, late: true},
	"silent in the head":           {serve: then(answer(okHead+"Content-Le"), hang), late: true},
	"reset":                        {serve: then(answer(), reset)},
}

func TestPlainResponsesAreJudgedInSteps(t *testing.T) {
	tier.Slow(t)
	for name, test := range plainResponses {
		for _, compatibility := range []probe.Compatibility{probe.Mended, probe.Kubelet} {
			t.Run(name+" "+compatibility.String(), func(t *testing.T) {
				test.config.Compatibility = compatibility
				timeout := plenty
				if test.late {
					timeout = short
				}
				sameBothWays(t, test.config, serveRaw(t, test.serve), timeout)
			})
		}
	}
}
