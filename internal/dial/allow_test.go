package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// A name whose addresses change from one lookup to the next leads only to allowed ones.
func TestARestrictedAttemptConnectsToAllowedAddressesOnly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()
	only := netip.MustParseAddr("127.0.0.1")
	ctx := WithAllow(t.Context(), func(host string, to netip.AddrPort) error {
		if to.Addr() == only && to.Port() == port && host != "other" {
			return nil
		}
		return errors.New("of " + host + " is not allowed")
	})
	d := dialer(t, Config{})
	d.lookup = names{"good": {"127.0.0.1"}, "both": {"127.0.0.2", "127.0.0.1"}, "bad": {"127.0.0.2", "127.0.0.3"}, "mapped": {"::ffff:127.0.0.2"}, "other": {"127.0.0.1"}}.lookup
	for host, want := range map[string]string{
		"good": "", "both": "", "127.0.0.1": "", "::ffff:127.0.0.1": "",
		"bad": "127.0.0.2", "mapped": "127.0.0.2", "other": "127.0.0.1", "127.0.0.2": "127.0.0.2",
	} {
		if want != "" {
			want = netip.AddrPortFrom(netip.MustParseAddr(want), port).String() + " of " + host + " is not allowed"
		}
		conn, err := d.Open(ctx, host, port, new(probe.Timings))
		if err == nil {
			conn.Close()
		}
		var known *Error
		switch {
		case want == "" && err != nil, want != "" && err == nil:
			t.Errorf("%s: %v, want %q", host, err, want)
		case want != "" && (!errors.As(err, &known) || known.Outcome != probe.Failure || known.Reason != probe.ReasonNotAllowed || err.Error() != want):
			t.Errorf("%s: %v, want %q", host, err, want)
		}
	}
}

func TestARestrictedAttemptConnectsToNoUnixSocket(t *testing.T) {
	path := filepath.Join(testsync.SocketDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := dialer(t, Config{UnixSocket: path})
	ctx := WithAllow(context.Background(), func(string, netip.AddrPort) error { return nil })
	var known *Error
	if _, err := d.Open(ctx, "localhost", 1, new(probe.Timings)); !errors.As(err, &known) || known.Reason != probe.ReasonNotAllowed {
		t.Errorf("the error is %v", err)
	}
}
