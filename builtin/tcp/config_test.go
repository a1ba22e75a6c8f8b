package tcpprobe_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
)

func TestAWrongFieldIsNamed(t *testing.T) {
	no := false
	tests := map[string]struct {
		config tcpprobe.Config
		field  string
	}{
		"no port":                         {tcpprobe.Config{}, "port"},
		"a port out of range":             {tcpprobe.Config{Port: "-1"}, "port"},
		"a port and a unix socket":        {tcpprobe.Config{Port: "1", UnixSocket: "/s"}, "port"},
		"a host and a unix socket":        {tcpprobe.Config{Host: "shop", UnixSocket: "/s"}, "host"},
		"a unix socket's name is unknown": {tcpprobe.Config{UnixSocket: "/s", TLS: &tcpprobe.TLS{}}, "tls.server_name"},
		"a zero byte in a unix socket":    {tcpprobe.Config{UnixSocket: "/s\x00"}, "unix_socket"},
		"a host with a port":              {tcpprobe.Config{Port: "1", Host: "shop:1"}, "host"},
		"an unknown family":               {tcpprobe.Config{Port: "1", IPFamily: "ip4"}, "ip_family"},
		"most addresses":                  {tcpprobe.Config{Port: "1", Addresses: "most"}, "addresses"},
		"all addresses, one kept":         {tcpprobe.Config{Port: "1", Addresses: "all", KeepAlive: &tcpprobe.KeepAlive{}}, "addresses"},
		"nothing to ask":                  {tcpprobe.Config{Port: "1", Send: "x", ReuseConnection: true}, "reuse_connection"},
		"a connection of tls to reuse":    {tcpprobe.Config{Port: "1", Send: "x", Expect: "y", TLS: &tcpprobe.TLS{}, ReuseConnection: true}, "reuse_connection"},
		"a unix socket to reuse":          {tcpprobe.Config{UnixSocket: "/s", Send: "x", Expect: "y", ReuseConnection: true}, "reuse_connection"},
		"all addresses, one reused":       {tcpprobe.Config{Port: "1", Addresses: "all", Send: "x", Expect: "y", ReuseConnection: true}, "addresses"},
		"fresh without reuse":             {tcpprobe.Config{Port: "1", FreshEvery: 5}, "fresh_every"},
		"each fresh":                      {tcpprobe.Config{Port: "1", Send: "x", Expect: "y", ReuseConnection: true, FreshEvery: 1}, "fresh_every"},
		"half a second idle":              {tcpprobe.Config{Port: "1", KeepAlive: &tcpprobe.KeepAlive{Idle: 1500 * time.Millisecond}}, "keepalive.idle"},
		"two things to send":              {tcpprobe.Config{Port: "1", Send: "x", SendHex: "00"}, "send_hex"},
		"half a byte to send":             {tcpprobe.Config{Port: "1", SendHex: "0"}, "send_hex"},
		"text and regex expected":         {tcpprobe.Config{Port: "1", Expect: "x", ExpectRegex: "x"}, "expect_regex"},
		"regex and hex expected":          {tcpprobe.Config{Port: "1", ExpectRegex: "x", ExpectHex: "00"}, "expect_hex"},
		"a regex that is none":            {tcpprobe.Config{Port: "1", ExpectRegex: "("}, "expect_regex"},
		"hex without digits":              {tcpprobe.Config{Port: "1", ExpectHex: "  "}, "expect_hex"},
		"hex to send without digits":      {tcpprobe.Config{Port: "1", SendHex: " "}, "send_hex"},
		"hex that is none":                {tcpprobe.Config{Port: "1", ExpectHex: "PONG"}, "expect_hex"},
		"text that is too long":           {tcpprobe.Config{Port: "1", Expect: strings.Repeat("x", 20000)}, "expect"},
		"hex that is too long":            {tcpprobe.Config{Port: "1", ExpectHex: strings.Repeat("00", 20000)}, "expect_hex"},
		"a validity of kept connections":  {tcpprobe.Config{Port: "1", TLS: &tcpprobe.TLS{MinValidity: 1}, KeepAlive: &tcpprobe.KeepAlive{}}, "tls.min_validity"},
		"half open with tls":              {tcpprobe.Config{Port: "1", HalfOpen: true, TLS: &tcpprobe.TLS{Verify: &no}}, "half_open"},
		"half open with send":             {tcpprobe.Config{Port: "1", HalfOpen: true, SendHex: "00"}, "half_open"},
		"half open with expect":           {tcpprobe.Config{Port: "1", HalfOpen: true, ExpectRegex: "x"}, "half_open"},
		"half open with a unix socket":    {tcpprobe.Config{UnixSocket: "/s", HalfOpen: true}, "half_open"},
		"a key without a certificate":     {tcpprobe.Config{Port: "1", TLS: &tcpprobe.TLS{KeyFile: "/k"}}, "tls.cert_file"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := tcpprobe.New(test.config)
			var wrong *probe.FieldError
			if !errors.As(err, &wrong) || wrong.Field != test.field {
				t.Errorf("got the error %v, want one for the field %s", err, test.field)
			}
		})
	}
}

func TestHexErrorsNameTheCharacter(t *testing.T) {
	for text, want := range map[string]string{
		"50 zz": `send_hex has the character 'z', which is not a hexadecimal digit; write two digits for each byte, as in "50 4f 4e 47"`,
		"50 4":  `send_hex has an odd number of digits; write two for each byte, as in "50 4f 4e 47"`,
	} {
		if _, err := tcpprobe.New(tcpprobe.Config{Port: "1", SendHex: text}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestAnAttemptIsMadeAtAllAddressesOfAName(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	h, err := tcpprobe.New(tcpprobe.Config{Host: "localhost", Port: port, IPFamily: "4", Addresses: "all"})
	if err != nil {
		t.Fatal(err)
	}
	if r := h.Probe(t.Context(), probe.Target{Name: "web"}); r.Outcome != probe.Success || r.Detail != "127.0.0.1 success" || r.Facts().Peer.String() != "127.0.0.1" {
		t.Errorf("got %+v", r)
	}
	listener.Close()
	if r := h.Probe(t.Context(), probe.Target{Name: "web"}); r.Outcome != probe.Failure || r.Reason != probe.ReasonTCPRefused {
		t.Errorf("got %+v", r)
	}
}
