package httpprobe_test

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
)

// A result describes the fault in a response's head, without any part of it that may be secret.
func TestAMalformedHeadIsDescribed(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for head, want := range map[string]string{
		"220 hunter2 ESMTP\r\n\r\n":                                             "the status in its first line is not a number of three digits",
		"hunter2\r\n\r\n":                                                       "its first line is not an HTTP status line",
		"HTTP/9.x 200 hunter2\r\n\r\n":                                          "its first line does not begin with an HTTP version",
		"HTTP/1.1 20 hunter2\r\n\r\n":                                           "the status in its first line is not a number of three digits",
		ok + "Set-Cookie: hunter2\x01; path=/\r\n\r\n":                          "its header Set-Cookie has a control character",
		ok + ": hunter2\r\n\r\n":                                                "one of its headers has no valid name",
		ok + "hunter2\r\n\r\n":                                                  "one of its headers has no colon",
		ok + " A: hunter2\r\n\r\n":                                              "its first header begins with white space",
		ok + "Content-Length: 2, 2\r\n\r\nok":                                   "its header Content-Length is not one number",
		ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok":                 "its header Content-Length is not one number",
		ok + "Transfer-Encoding: hunter2\r\n\r\nok":                             "its header Transfer-Encoding is not chunked",
		ok + "A: " + strings.Repeat("hunter2", 10_000) + "\r\n\r\n":             "its head is larger than 65536 bytes",
		strings.Repeat("HTTP/1.1 103 Hints\r\nA: hunter2\r\n\r\n", 20_000) + ok: "its head is larger than 65536 bytes",
	} {
		t.Run(want, func(t *testing.T) {
			target := serveRaw(t, func(conn *net.TCPConn) {
				skip(conn)
				io.WriteString(conn, head)
			})
			got := attempt(t, httpprobe.Config{Port: "web"}, target, plenty)
			wantResult(t, got, probe.Failure, probe.ReasonHTTPProtocol)
			if got.Detail != "the response is not valid HTTP: "+want {
				t.Errorf("got %q", got.Detail)
			}
		})
	}
}

func TestAMalformedBodyIsDescribed(t *testing.T) {
	const chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for body, want := range map[string]string{
		"0x2\r\nok\r\n0\r\n\r\n": "broke off: the size of a chunk, or what follows it, is not valid", "FFFFFFFFFFFFFFFFF\r\nok": "broke off: the size of a chunk, or what follows it, is not valid",
		"2\r\nhunter2\r\n0\r\n\r\n": "broke off: the size of a chunk, or what follows it, is not valid", "2;" + strings.Repeat("x", 5000) + "\r\nok": "broke off: the line before a chunk is too long",
		"2\r\nok\r\n0\r\nhunter2\r\n\r\n": "broke off: one of its headers has no colon", "9\r\nok": "broke off",
	} {
		target := serveRaw(t, func(conn *net.TCPConn) {
			skip(conn)
			io.WriteString(conn, chunks+body)
		})
		got := attempt(t, httpprobe.Config{Port: "web"}, target, plenty)
		wantResult(t, got, probe.Failure, probe.ReasonHTTPBody)
		if got.Detail != "status 200, but the body "+want {
			t.Errorf("%.20q: got %q", body, got.Detail)
		}
	}
}

func TestMalformedHTTP2IsDescribed(t *testing.T) {
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	ca := dialtest.NewAuthority(t)
	config := serverConfig(ca.Sign(t, time.Hour, "127.0.0.1"))
	config.NextProtos = []string{"h2"}
	for frames, want := range map[string]string{
		"220 hunter2 ESMTP\r\n": "it is not HTTP/2, or a frame is too large",
		settings + "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x07": "REFUSED_STREAM",
		settings + "\x00\x00\x01\x01\x05\x00\x00\x00\x01\x82":             "its head has no :status: PROTOCOL_ERROR",
		settings + "\x00\x00\x01\x01\x05\x00\x00\x00\x01\xff":             "COMPRESSION_ERROR",
		settings + "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00": "PROTOCOL_ERROR",
	} {
		t.Run(want, func(t *testing.T) {
			target := serveRaw(t, func(conn *net.TCPConn) {
				secure := tls.Server(conn, config)
				awaitRequest(secure)
				io.WriteString(secure, frames)
				io.Copy(io.Discard, secure)
			})
			got := attempt(t, httpprobe.Config{Port: "web", Scheme: "https", TLS: &httpprobe.TLS{CAFile: ca.File}}, target, plenty)
			wantResult(t, got, probe.Failure, probe.ReasonHTTPProtocol)
			if got.Detail != "the response is not valid HTTP/2: "+want {
				t.Errorf("got %q", got.Detail)
			}
		})
	}
}

// awaitRequest reads from an HTTP/2 client up to the head of its request.
func awaitRequest(conn io.Reader) {
	const preface, headers = 24, 1
	io.ReadFull(conn, make([]byte, preface))
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(conn, head); err != nil || head[3] == headers {
			return
		}
		io.CopyN(io.Discard, conn, int64(head[0])<<16|int64(head[1])<<8|int64(head[2]))
	}
}
