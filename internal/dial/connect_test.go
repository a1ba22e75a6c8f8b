package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/nonblocktest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// names is a resolver that knows a few names.
type names map[string][]string

func (n names) lookup(_ context.Context, host string) ([]netip.Addr, bool, error) {
	texts, ok := n[host]
	if !ok {
		return nil, true, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	var ips []netip.Addr
	for _, text := range texts {
		ips = append(ips, netip.MustParseAddr(text))
	}
	return ips, true, nil
}

func dialer(t *testing.T, c Config) *Dialer {
	t.Helper()
	if c.Port == "" && c.UnixSocket == "" {
		c.Port = "1"
	}
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// listen returns the port of a listener on an address.
func listen(t *testing.T, address string) uint16 {
	t.Helper()
	listener, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return netip.MustParseAddrPort(listener.Addr().String()).Port()
}

func wantError(t *testing.T, err error, outcome probe.Outcome, reason probe.Reason) {
	t.Helper()
	var got *Error
	if !errors.As(err, &got) || got.Outcome != outcome || got.Reason != reason {
		t.Errorf("got the error %+v, want %v %q", err, outcome, reason)
	}
}

func TestTheAddressesOfANameAreTriedInOrder(t *testing.T) {
	port := listen(t, "127.0.0.2")
	tests := map[string]struct {
		source  string
		ips     []string
		outcome probe.Outcome
		reason  probe.Reason
	}{
		"the second one takes it":            {"", []string{"127.0.0.3", "127.0.0.2"}, probe.Success, ""},
		"one is written as IPv6":             {"", []string{"::ffff:127.0.0.2"}, probe.Success, ""},
		"none takes it":                      {"", []string{"127.0.0.3", "127.0.0.4"}, probe.Failure, probe.ReasonTCPRefused},
		"no machine is skipped":              {"", []string{"0.0.0.0", "::", "127.0.0.2"}, probe.Success, ""},
		"no machine only":                    {"", []string{"0.0.0.0"}, probe.Failure, probe.ReasonDNSFailed},
		"no address":                         {"", nil, probe.Failure, probe.ReasonDNSFailed},
		"another family is skipped":          {"127.0.0.9", []string{"::1", "127.0.0.2"}, probe.Success, ""},
		"another family only":                {"::1", []string{"127.0.0.2"}, probe.Unknown, probe.ReasonTCPSource},
		"a failure tells more than our want": {"", []string{"fe80::1", "127.0.0.3"}, probe.Failure, probe.ReasonTCPRefused},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := dialer(t, Config{SourceAddress: test.source})
			d.lookup = names{"shop": test.ips}.lookup
			var took probe.Timings
			conn, err := d.Open(t.Context(), "shop", port, &took)
			if err == nil {
				conn.Close()
			}
			if err == nil != (test.outcome == probe.Success) {
				t.Errorf("got the error %v", err)
			}
			if err != nil {
				wantError(t, err, test.outcome, test.reason)
			}
			if took.Resolve <= 0 {
				t.Errorf("got the timings %+v", took)
			}
		})
	}
}

// A refusal is an answer. A plugin that reports it with its own reason has not waited either.
func TestARefusedConnectionTakesNoTime(t *testing.T) {
	closed := listen(t, "127.0.0.2")
	for name, open := range map[string]func(*probe.Timings) (net.Conn, error){
		"tcp": func(took *probe.Timings) (net.Conn, error) {
			return dialer(t, Config{}).Open(t.Context(), "127.0.0.3", closed, took)
		},
		"a unix socket": func(took *probe.Timings) (net.Conn, error) {
			return dialer(t, Config{}).ConnectUnix(t.Context(), filepath.Join(t.TempDir(), "none.sock"), took)
		},
	} {
		var took probe.Timings
		if _, err := open(&took); err == nil || took != (probe.Timings{}) {
			t.Errorf("%s: got the error %v and the timings %+v", name, err, took)
		}
	}
	var took probe.Timings
	over, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	if _, err := dialer(t, Config{}).Open(over, "127.0.0.2", closed, &took); err == nil || took.Connect <= 0 || took.Connected {
		t.Errorf("without an answer: got the error %v and the timings %+v", err, took)
	}
}

func TestOnlySomeAddressesAreTried(t *testing.T) {
	port := listen(t, "127.0.1.8")
	for first, reached := range map[int]bool{1: true, 0: false} {
		var ips []string
		for i := range 100 {
			ips = append(ips, netip.AddrFrom4([4]byte{127, 0, 1, byte(first + i)}).String())
		}
		d := dialer(t, Config{})
		d.lookup = names{"shop": ips}.lookup
		conn, err := d.Open(t.Context(), "shop", port, new(probe.Timings))
		if (err == nil) != reached {
			t.Errorf("from %s: %v", ips[0], err)
		}
		if err == nil {
			conn.Close()
		}
	}
}

func TestAnIPAddressIsNotLookedUp(t *testing.T) {
	d := dialer(t, Config{})
	d.lookup = func(context.Context, string) ([]netip.Addr, bool, error) {
		t.Error("the resolver was asked")
		return nil, true, nil
	}
	var took probe.Timings
	conn, err := d.Open(t.Context(), "127.0.0.2", listen(t, "127.0.0.2"), &took)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if took.Resolve != 0 || took.Connect <= 0 || !took.Connected {
		t.Errorf("got the timings %+v", took)
	}
}

func TestASocketOverUDPHasNotConnected(t *testing.T) {
	var took probe.Timings
	conn, err := dialer(t, Config{}).Connect(t.Context(), "udp", []netip.Addr{netip.MustParseAddr("127.0.0.2")}, 9, &took)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if took.Connected {
		t.Errorf("got the timings %+v", took)
	}
}

func TestResolverErrorsHaveReasons(t *testing.T) {
	tests := map[string]struct {
		err    error
		reason probe.Reason
	}{
		"no such name": {&net.DNSError{Err: "no such host", IsNotFound: true}, probe.ReasonDNSNotFound},
		"late":         {&net.DNSError{Err: "i/o timeout", IsTimeout: true}, probe.ReasonDNSTimeout},
		"an error":     {&net.DNSError{Err: "server misbehaving", IsTemporary: true}, probe.ReasonDNSFailed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := dialer(t, Config{})
			d.lookup = func(context.Context, string) ([]netip.Addr, bool, error) { return nil, true, test.err }
			_, err := d.Open(t.Context(), "shop", 1, new(probe.Timings))
			wantError(t, err, probe.Failure, test.reason)
		})
	}
}

func TestALookupEndsAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dialer(t, Config{})
		d.lookup = func(ctx context.Context, _ string) ([]netip.Addr, bool, error) {
			<-ctx.Done()
			return nil, true, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var took probe.Timings
		_, err := d.Open(ctx, "shop", 1, &took)
		wantError(t, err, probe.Failure, probe.ReasonDNSTimeout)
		if took != (probe.Timings{Resolve: time.Second}) {
			t.Errorf("got the timings %+v", took)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		_, err = d.Open(stopped, "shop", 1, new(probe.Timings))
		wantError(t, err, probe.Unknown, probe.ReasonStopped)
	})
}

func TestASilentAddressLeavesTimeForTheNext(t *testing.T) {
	tier.Slow(t)
	full := nonblocktest.FullListener(t, "127.0.0.3")
	port := full.Port()
	taker, err := net.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), port).String())
	if err != nil {
		t.Skip("the port is taken on another address")
	}
	defer taker.Close()
	d := dialer(t, Config{})
	d.lookup = names{"shop": {"127.0.0.3", "127.0.0.2"}}.lookup
	testsync.Longer(t, "a connection", time.Second, 1500*time.Millisecond, func(timeout time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		conn, err := d.Open(ctx, "shop", port, new(probe.Timings))
		if err != nil {
			t.Log(err)
			return false
		}
		return conn.Close() == nil
	})

	d.lookup = names{"shop": {"127.0.0.3"}}.lookup
	late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = d.Open(late, "shop", port, new(probe.Timings))
	wantError(t, err, probe.Failure, probe.ReasonTCPTimeout)
}

func TestAUnixSocketWithAFullBacklogIsRefused(t *testing.T) {
	file := filepath.Join(testsync.SocketDir(t), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: file}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	d := dialer(t, Config{UnixSocket: file})
	for range 10 {
		conn, err := d.Open(t.Context(), "", 0, new(probe.Timings))
		if err != nil {
			wantError(t, err, probe.Failure, probe.ReasonUnixRefused)
			return
		}
		defer conn.Close()
	}
	t.Skip("this system's backlog has no end")
}

func TestAFileThatIsNoSocketIsRefused(t *testing.T) {
	_, err := dialer(t, Config{UnixSocket: testsync.SocketDir(t)}).Open(t.Context(), "", 0, new(probe.Timings))
	wantError(t, err, probe.Failure, probe.ReasonUnixRefused)
}

func TestAnEmptyHostIsAnError(t *testing.T) {
	_, err := dialer(t, Config{}).Open(t.Context(), "", listen(t, "127.0.0.1"), new(probe.Timings))
	wantError(t, err, probe.Unknown, probe.ReasonNoAddr)
}

func TestHostsAreCheckedBeforeTheyAreUsed(t *testing.T) {
	good := []string{"127.0.0.1", "::1", "fe80::1%eth0", "shop", "shop.example", "shop.example.", "_dns.shop", "xn--bcher-kva.example"}
	for _, host := range good {
		if problem := HostProblem(host); problem != "" {
			t.Errorf("%q %s", host, problem)
		}
	}
	bad := []string{"", ".", "..", "a..b", ".a", "a b", "a/b", "a@b", "a:1", "[::1]", "http://a", "0.0.0.0", "::", "bücher.example", "a\x00", strings.Repeat("a", 254)}
	for _, host := range bad {
		if HostProblem(host) == "" {
			t.Errorf("there is nothing wrong with %q", host)
		}
	}
}
