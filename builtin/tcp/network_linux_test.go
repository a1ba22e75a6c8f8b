package tcpprobe_test

import (
	"cmp"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/nonblocktest"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestATargetIsProbedFromItsNetwork(t *testing.T) {
	tier.CI(t)
	if !faulttest.InNamespaces(t) {
		return
	}
	blue := faulttest.NetworkNamespace(t, "blue", `ip link add other type veth peer name peer
		ip rule add pref 1 lookup local; ip rule add pref 0 fwmark 0x80000007 unreachable; ip rule del pref 0 lookup local`)
	// The server sends each client the address that it connects from.
	answer := func(listener net.Listener) {
		serve(t, listener, func(conn net.Conn) { io.WriteString(conn, conn.RemoteAddr().String()); stay(conn) })
	}
	inBlue := faulttest.ListenIn(t, blue, "tcp", "127.0.0.1:0")
	answer(inBlue)
	in6 := faulttest.ListenIn(t, blue, "tcp", "[::1]:0")
	answer(in6)
	_, port6, _ := net.SplitHostPort(in6.Addr().String())
	abstract := faulttest.ListenIn(t, blue, "unix", "@sonde")
	go func() {
		for conn, err := abstract.Accept(); err == nil; conn, err = abstract.Accept() {
			io.WriteString(conn, "unix")
		}
	}()
	for name, test := range map[string]struct {
		config  tcpprobe.Config
		network *probe.Network
		outcome probe.Outcome
		reason  probe.Reason
		stepped bool
	}{
		"that of the engine":              {tcpprobe.Config{}, nil, probe.Failure, probe.ReasonTCPRefused, true},
		"by name":                         {tcpprobe.Config{Expect: "127.0.0.1"}, &probe.Network{Namespace: "blue"}, probe.Success, "", true},
		"by path":                         {tcpprobe.Config{Expect: "127.0.0.1"}, &probe.Network{Namespace: blue}, probe.Success, "", true},
		"half open":                       {tcpprobe.Config{HalfOpen: true}, &probe.Network{Namespace: "blue"}, probe.Success, "", true},
		"a name":                          {tcpprobe.Config{Host: "localhost", IPFamily: "4", Expect: "127.0.0.1"}, &probe.Network{Namespace: "blue"}, probe.Success, "", false},
		"IPv6":                            {tcpprobe.Config{Host: "::1", Port: port6, Expect: "::1"}, &probe.Network{Namespace: "blue"}, probe.Success, "", true},
		"an abstract socket":              {tcpprobe.Config{UnixSocket: "@sonde", Expect: "unix"}, &probe.Network{Namespace: "blue"}, probe.Success, "", false},
		"an abstract socket elsewhere":    {tcpprobe.Config{UnixSocket: "@sonde"}, nil, probe.Failure, probe.ReasonUnixRefused, false},
		"a source":                        {tcpprobe.Config{Expect: "127.0.0.9"}, &probe.Network{Namespace: "blue", Source: "127.0.0.9"}, probe.Success, "", true},
		"source_address takes precedence": {tcpprobe.Config{SourceAddress: "127.0.0.8", Expect: "127.0.0.8"}, &probe.Network{Namespace: "blue", Source: "127.0.0.9"}, probe.Success, "", true},
		"a source that is not there":      {tcpprobe.Config{}, &probe.Network{Namespace: "blue", Source: "192.0.2.1"}, probe.Unknown, probe.ReasonTCPSource, true},
		"a source of another family":      {tcpprobe.Config{}, &probe.Network{Namespace: "blue", Source: "::1"}, probe.Unknown, probe.ReasonTCPSource, true},
		"an interface":                    {tcpprobe.Config{Expect: "127.0.0.1"}, &probe.Network{Namespace: "blue", Interface: "lo"}, probe.Success, "", true},
		"an interface of another one":     {tcpprobe.Config{}, &probe.Network{Interface: "other"}, probe.Unknown, probe.ReasonNetwork, false},
		"a mark":                          {tcpprobe.Config{Expect: "127.0.0.1"}, &probe.Network{Namespace: "blue", Mark: 1}, probe.Success, "", true},
		"a mark without a route":          {tcpprobe.Config{}, &probe.Network{Namespace: "blue", Mark: 0x80000007}, probe.Failure, probe.ReasonTCPUnreachable, true},
		"no such namespace":               {tcpprobe.Config{}, &probe.Network{Namespace: "red"}, probe.Unknown, probe.ReasonNetwork, false},
		"no namespace":                    {tcpprobe.Config{}, &probe.Network{Namespace: "/etc/passwd"}, probe.Unknown, probe.ReasonNetwork, false},
	} {
		target := targetOf(inBlue.Addr())
		target.Network = test.network
		if test.config.UnixSocket == "" {
			test.config.Port = cmp.Or(test.config.Port, "db")
		}
		t.Run(name, func(t *testing.T) {
			wantResult(t, attempt(t, test.config, target, plenty), test.outcome, test.reason)
			got, stepped := nonblocktest.InTime(t, plenty, handler(t, test.config).Handler, target)
			wantResult(t, got, test.outcome, test.reason)
			if stepped != test.stepped {
				t.Errorf("made in steps: %v", stepped)
			}
		})
	}
	kept := handler(t, tcpprobe.Config{Port: "db", KeepAlive: &tcpprobe.KeepAlive{}})
	target := targetOf(inBlue.Addr())
	target.Network = &probe.Network{Namespace: "blue"}
	got, _ := nonblocktest.InTime(t, plenty, kept.Handler, target)
	wantResult(t, got, probe.Success, "")
	faulttest.WithoutRoot(t, func() {
		for want, n := range map[string]*probe.Network{
			"network namespace blue: operation not permitted: the engine needs CAP_SYS_ADMIN to enter it": {Namespace: "blue"},
			"mark 7: operation not permitted: the engine needs CAP_NET_ADMIN to set it":                   {Mark: 7},
		} {
			target.Network = n
			got, _ := nonblocktest.InTime(t, plenty, handler(t, tcpprobe.Config{Port: "db"}).Handler, target)
			if wantResult(t, got, probe.Unknown, probe.ReasonPermission); got.Detail != want {
				t.Errorf("got %s, want %s", got.Detail, want)
			}
		}
	})
	threads, _ := filepath.Glob("/proc/self/task/*/ns/net")
	own, _ := os.Readlink("/proc/self/ns/net")
	for _, thread := range threads {
		if in, err := os.Readlink(thread); err == nil && in != own {
			t.Errorf("%s is in %s, not in %s", thread, in, own)
		}
	}
}
