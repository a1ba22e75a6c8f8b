package tcpprobe

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// TLS is the tls block: how to verify the server, and which client certificate
// to present to it.
type TLS = dial.TLS

// Config is a tcp block. The zero value of a field means its default.
type Config struct {
	// Port is a number from 1 to 65535 or the name of one of the target's
	// ports. It is required without UnixSocket.
	Port string `hcl:"port,optional"`

	// Host is the IP address or host name to connect to. Default: the target's
	// address.
	Host string `hcl:"host,optional"`

	// TLS adds a TLS handshake after the connection is open. Default: none. A TLS 1.3
	// server that rejects the client certificate reports it after the handshake:
	// expect a response to notice it.
	TLS *TLS `hcl:"tls,block"`

	// UnixSocket is the path of a socket to connect to instead of a host and a
	// port; @ begins a name in Linux's abstract namespace.
	UnixSocket string `hcl:"unix_socket,optional"`

	// SourceAddress is the IP address of this machine to connect from. Default:
	// the system chooses.
	SourceAddress string `hcl:"source_address,optional"`

	// Send is the text to send first, and SendHex the same as hexadecimal digits, in
	// which spaces are ignored. At most one is set. Default: nothing is sent.
	Send    string `hcl:"send,optional"`
	SendHex string `hcl:"send_hex,optional"`

	// Expect is text that the response must contain, ExpectRegex a regular expression
	// (Go's syntax, RE2) that must match in it, ExpectHex bytes that it must contain.
	// At most one is set. Only the first probe.MaxDetail bytes of the response are
	// searched. Default: the attempt does not wait for a response.
	Expect      string `hcl:"expect,optional"`
	ExpectRegex string `hcl:"expect_regex,optional"`
	ExpectHex   string `hcl:"expect_hex,optional"`

	// HalfOpen ends the attempt with a reset as soon as the server's operating system
	// has answered, so that the server program never sees a connection. If the reset is
	// lost, the server's system keeps the handshake for about a minute. It excludes
	// TLS, UnixSocket, KeepAlive, the sends and the expects, and works on Linux only.
	// Default false.
	HalfOpen bool `hcl:"half_open,optional"`

	// KeepAlive keeps the connection between attempts. When the connection ends, an
	// attempt is made at once and fails; the next one opens another connection.
	// Send and the expects apply once to each connection. KeepAlive excludes
	// HalfOpen. Default: a connection for each attempt.
	KeepAlive *KeepAlive `hcl:"keepalive,block"`
}

// New makes a handler: a *Handler or, with KeepAlive, a probe.StatefulHandler. An error
// is a *probe.FieldError with the HCL name of the field.
func New(c Config) (probe.Handler, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	dialer, err := dial.New(dial.Config{
		Host: c.Host, Port: c.Port, UnixSocket: c.UnixSocket, SourceAddress: c.SourceAddress,
		HalfOpen: c.HalfOpen, ClientFirst: c.Send+c.SendHex != "",
	})
	if err != nil {
		return nil, err
	}
	h := &Handler{dialer: dialer, slow: c.ExpectRegex != ""}
	if h.request, err = c.request(); err != nil {
		return nil, err
	}
	if h.matches, err = c.expectation(); err != nil {
		return nil, err
	}
	if c.TLS != nil {
		if h.tls, err = c.TLS.Load(); err != nil {
			return nil, err
		}
	}
	h.exchange = &nonblock.Exchange{Protocol: protocol{h}, Socket: dialer.SocketOptions(), DetectSelf: true}
	if h.matches != nil {
		h.exchange.MaxResponse = probe.MaxDetail
	}
	if c.KeepAlive != nil {
		return &keepAliveHandler{opener: h, config: c.KeepAlive.config()}, nil
	}
	return h, nil
}

// check returns an error for fields that exclude each other.
func (c Config) check() error {
	text := c.Send + c.SendHex + c.Expect + c.ExpectRegex + c.ExpectHex
	switch {
	case c.HalfOpen && c.TLS != nil:
		return probe.FieldErrorf("half_open", "cannot be combined with a tls block")
	case c.HalfOpen && text != "":
		return probe.FieldErrorf("half_open", "cannot be combined with send or expect")
	case c.HalfOpen && c.KeepAlive != nil:
		return probe.FieldErrorf("half_open", "cannot be combined with a keepalive block")
	case c.UnixSocket != "" && c.Host != "":
		return probe.FieldErrorf("host", "cannot be combined with unix_socket")
	case c.UnixSocket != "" && c.TLS != nil && c.TLS.ServerName == "" && (c.TLS.Verify == nil || *c.TLS.Verify):
		return probe.FieldErrorf("tls.server_name", "must be set, since a unix socket has no host name to verify")
	case c.Send != "" && c.SendHex != "":
		return probe.FieldErrorf("send_hex", "cannot be combined with send")
	case c.Expect != "" && c.ExpectRegex != "":
		return probe.FieldErrorf("expect_regex", "cannot be combined with expect")
	case c.ExpectHex != "" && c.Expect+c.ExpectRegex != "":
		return probe.FieldErrorf("expect_hex", "cannot be combined with expect or expect_regex")
	case c.KeepAlive != nil:
		return c.KeepAlive.check()
	}
	return nil
}

func (c Config) request() ([]byte, error) {
	if c.SendHex == "" {
		return []byte(c.Send), nil
	}
	return parseHex("send_hex", c.SendHex)
}

// expectation returns a function that reports whether the beginning of a response is the
// expected one, or nil if none is expected.
func (c Config) expectation() (func(response []byte) bool, error) {
	if c.ExpectRegex != "" {
		re, err := regexp.Compile(c.ExpectRegex)
		if err != nil {
			return nil, &probe.FieldError{Field: "expect_regex", Problem: fmt.Sprintf("cannot be parsed: %v", err), Hint: "the syntax is that of Go (RE2), which has no lookaround and no backreferences"}
		}
		return re.Match, nil
	}
	want, name := []byte(c.Expect), "expect"
	if c.ExpectHex != "" {
		var err error
		name = "expect_hex"
		if want, err = parseHex(name, c.ExpectHex); err != nil {
			return nil, err
		}
	}
	switch {
	case len(want) == 0:
		return nil, nil
	case len(want) > probe.MaxDetail:
		return nil, probe.FieldErrorf(name, "is %d bytes long, but only the first %d bytes of a response are searched", len(want), probe.MaxDetail)
	}
	return func(response []byte) bool { return bytes.Contains(response, want) }, nil
}

func parseHex(name, s string) ([]byte, error) {
	digits := strings.Join(strings.Fields(s), "")
	b, err := hex.DecodeString(digits)
	if other := strings.Trim(digits, "0123456789abcdefABCDEF"); other != "" {
		r, _ := utf8.DecodeRuneInString(other)
		return nil, probe.FieldErrorf(name, `has the character %q, which is not a hexadecimal digit; write two digits for each byte, as in "50 4f 4e 47"`, r)
	}
	if err != nil {
		return nil, probe.FieldErrorf(name, `has an odd number of digits; write two for each byte, as in "50 4f 4e 47"`)
	}
	return b, nil
}
