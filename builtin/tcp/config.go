package tcpprobe

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// TLS is the tls block: how to verify the server, and which client certificate
// to present to it.
type TLS = dial.TLS

// KeepAlive is the keepalive block: the handler opens one connection and keeps it, and an attempt succeeds while the connection is
// open. With Config.ReuseConnection, each attempt sends and expects over the connection instead, and the block only has the
// settings of the packets.
//
// The reason of a failure says why the connection ended: tcp.closed if the peer closed it, tcp.timeout if the peer crashed,
// tcp.reset if the peer was restarted and does not know the connection, tcp.unreachable if there is no route to the peer.
type KeepAlive = dial.KeepAlive

// Config is a tcp block. The zero value of a field means its default.
type Config struct {
	Port            string     `hcl:"port,optional" doc:"a number from 1 to 65535, or the name of a port of the target; required without unix_socket" default:"none"`
	Host            string     `hcl:"host,optional" doc:"IP address or host name to connect to. A name costs more than an address: see Cost above" default:"the address of the target"`
	TLS             *TLS       `hcl:"tls,block" doc:"makes a TLS handshake after the connection is open. A TLS 1.3 server rejects a client certificate after the handshake: expect a response to notice it. An attempt costs more then: see Cost above"`
	UnixSocket      string     `hcl:"unix_socket,optional,socket" doc:"path of a socket to connect to instead of a host and a port; @ begins a name in the abstract namespace of Linux. An attempt costs more then: see Cost above" default:"none"`
	SourceAddress   string     `hcl:"source_address,optional" doc:"IP address of this machine to connect from" default:"the system chooses"`
	IPFamily        string     `hcl:"ip_family,optional" oneof:"any 4 6 prefer_4 prefer_6" doc:"which IP addresses of a name are used: only IPv4 or only IPv6, or those first; without another address the attempt fails" default:"any"`
	Addresses       string     `hcl:"addresses,optional" oneof:"any some all" doc:"what a name with several addresses takes: any of them, tried in order until one accepts a connection, or an attempt at all of them, at most eight, which share nine tenths of the timeout. With all the worst one decides. With some the target passes if one does, and an address that fails is a warning. The detail shows each" default:"any"`
	Send            string     `hcl:"send,optional" doc:"text to send first" default:"nothing is sent"`
	SendHex         string     `hcl:"send_hex,optional" doc:"bytes to send first, as hexadecimal digits in which spaces are ignored; not with send" default:"nothing is sent"`
	Expect          string     `hcl:"expect,optional" doc:"text that the first 10 KiB of the response must contain" default:"the attempt does not wait for a response"`
	ExpectRegex     string     `hcl:"expect_regex,optional" doc:"regular expression (syntax of Go, RE2) that must match in the first 10 KiB of the response, of which it is matched with what has come so far: write the end of a line rather than the end of the response, OK\\r?\\n for OK$. Not with expect" default:"the attempt does not wait for a response"`
	ExpectHex       string     `hcl:"expect_hex,optional" doc:"bytes that the first 10 KiB of the response must contain, as hexadecimal digits; not with expect or expect_regex" default:"the attempt does not wait for a response"`
	HalfOpen        bool       `hcl:"half_open,optional" doc:"ends the attempt with a reset as soon as the operating system of the server has answered, so that the server never sees a connection. If the reset is lost, the system of the server keeps the handshake for about a minute. It excludes tls, unix_socket, keepalive, and what is sent or expected. Linux only" default:"false"`
	KeepAlive       *KeepAlive `hcl:"keepalive,block" doc:"keeps one connection between attempts. When it ends, an attempt is made at once and fails; the next one connects again. What is sent and expected applies once to each connection, unless reuse_connection is set: then each attempt sends and expects, and the block has the settings of the packets only"`
	ReuseConnection bool       `hcl:"reuse_connection,optional" doc:"keeps the connection for the next attempt, which sends and expects over it: half of the cost of a new one, or less. A connection that the peer has closed meanwhile is no failure: the attempt opens a new one, and is made at once if more than one attempt had used the connection. One over which something comes that the attempt before has not read is closed. With the name of a host, each attempt opens a connection. Needs send and expect; excludes tls and unix_socket. Linux only; elsewhere each attempt opens a connection" default:"false"`
	FreshEvery      int        `hcl:"fresh_every,optional" doc:"with reuse_connection, how many attempts use a connection. The next one opens a new one, and so notices a server that accepts none. 0: any number" default:"0" min:"2" max:"1000000"`
	MaxEnds         int        `hcl:"max_ends,optional,nonzero" doc:"with a keepalive block, how many times the connection may end in 5 minutes. If it ends more often, as that of a server that crashes again and again between two attempts, attempts that succeed are warnings (tcp.closed)" default:"any" min:"1" max:"100"`
}

// maxMaxEnds is the maximum of Config.MaxEnds: as many times are stored, at 24 bytes each.
const maxMaxEnds = 100

// New creates a handler; with KeepAlive or ReuseConnection it is a probe.StatefulHandler. Errors are *probe.FieldErrors with the
// HCL names of the fields.
func New(c Config) (probe.Handler, error) {
	if err := cmp.Or(limits.Check(c, "").Err(), c.check()); err != nil {
		return nil, err
	}
	dialer, noDialer := dial.New(dial.Config{
		Host: c.Host, Port: c.Port, UnixSocket: c.UnixSocket, SourceAddress: c.SourceAddress, IPFamily: c.IPFamily, Addresses: c.Addresses,
		HalfOpen: c.HalfOpen, ClientFirst: c.Send+c.SendHex != "", KeepAlive: c.KeepAlive,
	})
	h := &handler{dialer: dialer, block: c.TLS, slow: c.ExpectRegex != ""}
	var noRequest, noExpectation, noTLS error
	h.request, noRequest = c.request()
	h.matches, noExpectation = c.expectation()
	if c.TLS != nil {
		h.tls, noTLS = c.TLS.Load()
	}
	if err := errors.Join(noDialer, noRequest, noExpectation, noTLS); err != nil {
		return nil, err
	}
	h.exchange = &nonblock.Exchange{Protocol: protocol{h}, Socket: dialer.SocketOptions(), DetectSelf: true}
	if h.matches != nil {
		h.exchange.MaxResponse = probe.MaxDetail
	}
	switch {
	case c.ReuseConnection:
		h.exchange.FreshEvery = c.FreshEvery
		return &reusing{handler: h}, nil
	case c.KeepAlive != nil:
		return &keepAliveHandler{opener: h, maxEnds: c.MaxEnds}, nil
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
	case dial.IsEach(c.Addresses) && c.KeepAlive != nil:
		return probe.FieldErrorf("addresses", "must be any with a keepalive block, since a kept connection is to one address")
	case c.MaxEnds != 0 && c.KeepAlive == nil:
		return probe.FieldErrorf("max_ends", "needs a keepalive block: without it no connection is kept")
	case c.ReuseConnection:
		return c.checkReuse()
	case c.FreshEvery != 0:
		return probe.FieldErrorf("fresh_every", "needs reuse_connection = true: without it no connection is used by several attempts")
	case c.KeepAlive != nil:
		return c.TLS.CheckFresh("a keepalive block")
	}
	return nil
}

// checkReuse returns an error if a field is set that ReuseConnection excludes, or one is missing that it needs.
func (c Config) checkReuse() error {
	switch {
	case c.Send+c.SendHex == "" || c.Expect+c.ExpectRegex+c.ExpectHex == "":
		return probe.FieldErrorf("reuse_connection", "needs send and expect, which each attempt does over the connection; to watch one connection, write keepalive {} alone")
	case c.TLS != nil:
		return probe.FieldErrorf("reuse_connection", "cannot be combined with a tls block")
	case c.UnixSocket != "":
		return probe.FieldErrorf("reuse_connection", "cannot be combined with unix_socket")
	case dial.IsEach(c.Addresses):
		return probe.FieldErrorf("addresses", "must be any with reuse_connection, since a kept connection is to one address")
	}
	return nil
}

func (c Config) request() ([]byte, error) {
	if c.SendHex == "" {
		return []byte(c.Send), nil
	}
	return parseHex("send_hex", c.SendHex)
}

// expectation returns a function that reports whether the beginning of a response contains the expected text or bytes, or nil if no
// response is expected.
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
	if s != "" && len(b) == 0 {
		return nil, probe.FieldErrorf(name, "has no digits; leave it out, or write two for each byte")
	}
	return b, nil
}
