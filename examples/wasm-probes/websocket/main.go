// Websocket is a plugin that makes the handshake of a WebSocket (RFC 6455), sends a
// ping or a message, and waits for what must come back.
package main

import (
	"context"
	"net"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/guest"
)

type settings struct {
	Port        string            `sonde:"port,required" doc:"a number from 1 to 65535, or the name of one of the target's ports"`
	Path        string            `sonde:"path" default:"/" doc:"what to ask for; it begins with / and may have a query"`
	Host        string            `sonde:"host" doc:"the Host header; default: the address that is dialled, and its port"`
	Headers     map[string]string `sonde:"headers,sensitive" doc:"sent with the handshake, such as Origin or Authorization"`
	Subprotocol string            `sonde:"subprotocol" doc:"is offered, and the server must take it; default: none is offered"`
	Ping        bool              `sonde:"ping" default:"true" doc:"whether to send a ping, which must be answered"`
	Send        string            `sonde:"send" doc:"a text message to send after the handshake"`
	Expect      string            `sonde:"expect" doc:"what one of the server's messages must have in it; others are passed by"`
	TLS         *guest.TLS        `sonde:"tls" doc:"makes the handshake over TLS (wss)"`
}

// Bounds of what an operator may write, in bytes.
const (
	maxPath = 4 << 10
	maxSend = 16 << 10
)

// Prepare checks what the types do not say.
func (s *settings) Prepare() error {
	switch {
	case !strings.HasPrefix(s.Path, "/") || strings.ContainsFunc(s.Path, notVisible):
		return &guest.FieldError{Field: "path", Problem: "is " + strconv.Quote(s.Path) + ", it must begin with / and be of visible ASCII characters"}
	case len(s.Path) > maxPath:
		return &guest.FieldError{Field: "path", Problem: "is longer than " + strconv.Itoa(maxPath) + " bytes"}
	case strings.ContainsFunc(s.Host, notVisible):
		return &guest.FieldError{Field: "host", Problem: "is " + strconv.Quote(s.Host) + ", it must be of visible ASCII characters"}
	case s.Subprotocol != "" && !isToken(s.Subprotocol):
		return &guest.FieldError{Field: "subprotocol", Problem: "is " + strconv.Quote(s.Subprotocol) + ", it must be one word as in HTTP"}
	case len(s.Send) > maxSend:
		return &guest.FieldError{Field: "send", Problem: "is longer than " + strconv.Itoa(maxSend) + " bytes"}
	case len(s.Expect) > maxKept:
		return &guest.FieldError{Field: "expect", Problem: "is longer than " + strconv.Itoa(maxKept) + " bytes"}
	}
	for name, value := range s.Headers {
		if problem := wrongHeader(name, value); problem != "" {
			return &guest.FieldError{Field: "headers", Problem: problem}
		}
	}
	return nil
}

// attempt makes the handshake and asks.
func attempt(ctx context.Context, t guest.Target[settings]) guest.Result {
	c, err := dial(ctx, t)
	if err != nil {
		return guest.FailWith("websocket.dial", err)
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		// An error shows itself with the first read.
		_ = c.SetDeadline(deadline)
	}
	s := t.Settings
	r, err := s.shake(c, s.host(t))
	if err != nil {
		return judge(err)
	}
	v := &conversation{to: c, from: r, expect: s.Expect, left: maxRead}
	if err := v.ask(s.Ping, s.Send); err != nil {
		return judge(err)
	}
	if err := v.await(); err != nil {
		return judge(err)
	}
	v.leave()
	return guest.Succeed(s.told(v))
}

func dial(ctx context.Context, t guest.Target[settings]) (*guest.Conn, error) {
	s := t.Settings
	if s.TLS == nil {
		return t.Dial(ctx, "tcp", ":"+s.Port)
	}
	secure := *s.TLS
	secure.ALPN = []string{"http/1.1"} // over HTTP/2 the handshake is another
	return t.DialTLS(ctx, ":"+s.Port, secure)
}

// host returns the Host header: without the port where that is the scheme's own.
func (s *settings) host(t guest.Target[settings]) string {
	if s.Host != "" {
		return s.Host
	}
	port, usual := s.Port, "80"
	if n, ok := t.Ports[port]; ok {
		port = strconv.Itoa(int(n))
	}
	if s.TLS != nil {
		usual = "443"
	}
	host := net.JoinHostPort(t.Address, port)
	if port == usual {
		host = strings.TrimSuffix(host, ":"+port)
	}
	return host
}

// told tells people what came back.
func (s *settings) told(v *conversation) string {
	text := "the handshake was answered"
	if s.Ping {
		text += ", and the ping"
	}
	if s.Expect != "" {
		text += ", and the server said " + quote(v.said)
	}
	return text
}

func init() {
	guest.Register(guest.Plugin{
		Name: "websocket", Version: "1.0.0", Doc: "makes the handshake of a WebSocket, and asks by a ping or a message",
	}, attempt)
}

func main() { guest.Main() }
