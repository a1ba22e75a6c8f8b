// Websocket is a plugin that performs a WebSocket handshake (RFC 6455), sends a ping or a message,
// and waits for the response.
package main

import (
	"context"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/guest"
)

type settings struct {
	Port        string            `sonde:"port,required" doc:"a number from 1 to 65535, or the name of one of the target's ports"`
	Path        string            `sonde:"path" default:"/" doc:"the path to request; begins with / and may have a query"`
	Host        string            `sonde:"host" doc:"the Host header; default: the address that is dialled, and its port"`
	Headers     map[string]string `sonde:"headers,sensitive" doc:"headers of the handshake, such as Origin or Authorization"`
	Subprotocol string            `sonde:"subprotocol" doc:"the subprotocol to offer, which the server must accept; default: none"`
	Ping        bool              `sonde:"ping" default:"true" doc:"whether to send a ping, which must be answered"`
	Send        string            `sonde:"send" doc:"a text message to send after the handshake"`
	Expect      string            `sonde:"expect" doc:"text that one of the server's messages must contain; others are ignored"`
	TLS         *guest.TLS        `sonde:"tls" doc:"connect over TLS (wss)"`
}

// Limits of settings, in bytes.
const (
	maxPath = 4 << 10
	maxSend = 16 << 10
)

// Prepare validates the settings.
func (s *settings) Prepare() error {
	switch {
	case !strings.HasPrefix(s.Path, "/") || strings.ContainsFunc(s.Path, notVisible):
		return &guest.FieldError{Field: "path", Problem: "is " + strconv.Quote(s.Path) + "; it must begin with / and be of visible ASCII characters"}
	case len(s.Path) > maxPath:
		return &guest.FieldError{Field: "path", Problem: "is longer than " + strconv.Itoa(maxPath) + " bytes"}
	case strings.ContainsFunc(s.Host, notVisible):
		return &guest.FieldError{Field: "host", Problem: "is " + strconv.Quote(s.Host) + "; it must be of visible ASCII characters"}
	case s.Subprotocol != "" && !isToken(s.Subprotocol):
		return &guest.FieldError{Field: "subprotocol", Problem: "is " + strconv.Quote(s.Subprotocol) + "; it must be one word as in HTTP"}
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

// attempt performs the handshake and exchanges the ping and the message.
func attempt(ctx context.Context, t guest.Target[settings]) guest.Result {
	s := t.Settings
	c, err := t.DialPort(ctx, "tcp", s.Port, s.TLS, "http/1.1") // HTTP/2 has a different handshake
	if err != nil {
		return guest.FailWith("websocket.dial", err)
	}
	defer c.Close()
	v, err := s.converse(c, s.host(t))
	if err != nil {
		return guest.FailWith("websocket.protocol", err)
	}
	const normalClosure = 1000
	_ = v.write(opClose, binary.BigEndian.AppendUint16(nil, normalClosure)) // best effort: the result is known
	return guest.Succeed(s.summary(v))
}

// converse performs the handshake, sends the ping and the message, and waits for the responses.
func (s *settings) converse(c *guest.Conn, host string) (*conversation, error) {
	r, err := s.shake(c, host)
	if err != nil {
		return nil, err
	}
	v := &conversation{to: c, from: r, expect: s.Expect, left: maxRead}
	if err := v.ask(s.Ping, s.Send); err != nil {
		return nil, err
	}
	return v, v.await()
}

// host returns the Host header, without the scheme's default port.
func (s *settings) host(t guest.Target[settings]) string {
	if s.Host != "" {
		return s.Host
	}
	usual := ":80"
	if s.TLS != nil {
		usual = ":443"
	}
	return strings.TrimSuffix(t.HostPort(s.Port), usual)
}

// summary describes the received frames, for the detail.
func (s *settings) summary(v *conversation) string {
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
