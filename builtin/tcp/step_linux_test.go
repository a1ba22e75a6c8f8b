//go:build !386 && !s390x

package tcpprobe_test

import (
	"cmp"
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/nonblocktest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestStepsAndProbeHaveEqualResults(t *testing.T) {
	tier.Slow(t)
	listener := listen(t, "tcp", "127.0.0.1:0")
	closedPort := targetOf(listener.Addr())
	listener.Close()
	const most = probe.MaxDetail
	tests := map[string]struct {
		config  tcpprobe.Config
		target  probe.Target
		timeout time.Duration
	}{
		"connected":                  {tcpprobe.Config{}, serveTCP(t, stay), plenty},
		"half open":                  {tcpprobe.Config{HalfOpen: true}, serveTCP(t, stay), plenty},
		"a source":                   {tcpprobe.Config{SourceAddress: "127.0.0.9"}, serveTCP(t, stay), plenty},
		"a closed port":              {tcpprobe.Config{}, closedPort, plenty},
		"a source, a closed port":    {tcpprobe.Config{SourceAddress: "127.0.0.9"}, closedPort, plenty},
		"a source that is not ours":  {tcpprobe.Config{SourceAddress: "192.0.2.1"}, closedPort, plenty},
		"an address like IPv4":       {tcpprobe.Config{Host: "::ffff:127.0.0.1"}, closedPort, plenty},
		"an IPv6 address":            {tcpprobe.Config{Host: "::1"}, closedPort, plenty},
		"a multicast address":        {tcpprobe.Config{Host: "224.0.0.1"}, closedPort, plenty},
		"the broadcast address":      {tcpprobe.Config{Host: "255.255.255.255"}, closedPort, plenty},
		"reserved addresses":         {tcpprobe.Config{Host: "240.0.0.1"}, closedPort, short},
		"no handshake":               {tcpprobe.Config{}, fullTarget(t), short},
		"no handshake to talk after": {tcpprobe.Config{Send: "PING"}, fullTarget(t), short},
		"expected":                   {tcpprobe.Config{Send: "PING", Expect: "PONG"}, serveTCP(t, after("PONG", stay)), plenty},
		"unexpected":                 {tcpprobe.Config{Send: "PING", Expect: "PONG"}, serveTCP(t, after("ERR")), plenty},
		"unexpected, and long":       {tcpprobe.Config{Send: "PING", Expect: "PONG"}, serveTCP(t, after(strings.Repeat("x", 2*most), stay)), plenty},
		"unexpected, and goes on":    {tcpprobe.Config{Send: "PING", Expect: "PONG"}, serveTCP(t, after("ERR", stay)), short},
		"a short expression":         {tcpprobe.Config{Send: "PING", ExpectRegex: "PO[^X]G"}, serveTCP(t, after("PONG", stay)), plenty},
		"silent":                     {tcpprobe.Config{Send: "PING", Expect: "PONG"}, serveTCP(t, stay), short},
		"closed":                     {tcpprobe.Config{Send: "PING", Expect: "PONG"}, serveTCP(t, after("")), plenty},
		"reset":                      {tcpprobe.Config{Send: "PING", Expect: "PONG"}, serveTCP(t, after("", reset)), plenty},
		"reset after a word":         {tcpprobe.Config{Expect: "PONG"}, serveTCP(t, after("ERR", reset)), short},
		"stuck":                      {tcpprobe.Config{Send: strings.Repeat("x", 32<<20)}, targetOf(listen(t, "tcp", "127.0.0.1:0").Addr()), short},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.config.Port = "db"
			h := handler(t, test.config).Handler
			testsync.Longer(t, "the same result", test.timeout, testsync.Timeout, func(timeout time.Duration) bool {
				got, stepped := nonblocktest.InTime(t, timeout, h, test.target)
				if !stepped {
					t.Error("it was not made in steps")
				}
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				want := nonblocktest.Normalize(h.Probe(ctx, test.target))
				if got = nonblocktest.Normalize(got); got == want {
					return true
				}
				t.Logf("in steps  %+v\nby Probe  %+v", got, want)
				if timeout >= plenty {
					t.FailNow()
				}
				return false
			})
		})
	}
}

// fullTarget returns a target that completes no handshake.
func fullTarget(t *testing.T) probe.Target {
	at := nonblocktest.FullListener(t, "127.0.0.1")
	return targetOf(net.TCPAddrFromAddrPort(at))
}

func TestUnsupportedAttemptsAreLeftToProbe(t *testing.T) {
	no := false
	tests := map[string]struct {
		config tcpprobe.Config
		target probe.Target
	}{
		"a name":                 {tcpprobe.Config{Port: "db", Host: "localhost"}, serveTCP(t, stay)},
		"tls":                    {tcpprobe.Config{Port: "db", TLS: &tcpprobe.TLS{Verify: &no}}, serveTCP(t, stay)},
		"a unix socket":          {tcpprobe.Config{UnixSocket: "/nowhere"}, probe.Target{}},
		"no address":             {tcpprobe.Config{Port: "db"}, probe.Target{}},
		"another family":         {tcpprobe.Config{Port: "db", SourceAddress: "::1"}, serveTCP(t, stay)},
		"a large expression":     {tcpprobe.Config{Port: "db", ExpectRegex: "no"}, serveTCP(t, send(strings.Repeat("x", 2000)))},
		"no machine":             {tcpprobe.Config{Port: "db"}, probe.Target{Address: "0.0.0.0", Ports: map[string]uint16{"db": 1}}},
		"an address with a zone": {tcpprobe.Config{Port: "db", Host: "fe80::1%lo"}, serveTCP(t, stay)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := handler(t, test.config).Handler
			nonblocktest.WantNoSteps(t, short, h, test.target)
		})
	}
}

func TestAddressesThatNeedProbeAreRemembered(t *testing.T) {
	var conns atomic.Int32
	long := serveTCP(t, func(conn net.Conn) {
		conns.Add(1)
		io.WriteString(conn, strings.Repeat("x", 2000)+"ok")
		stay(conn)
	})
	short := serveTCP(t, send("ok"))
	h := handler(t, tcpprobe.Config{Port: "db", ExpectRegex: "ok$"}).Handler
	for range 5 {
		got, _ := nonblocktest.InTime(t, plenty, h, long)
		wantResult(t, got, probe.Success, "")
		if got, stepped := nonblocktest.InTime(t, plenty, h, short); !stepped || got.Outcome != probe.Success {
			t.Errorf("the other target got %+v, in steps: %v", got, stepped)
		}
	}
	if got := conns.Load(); got != 6 {
		t.Errorf("5 attempts made %d connections, want 6", got)
	}
}

func TestALargeRequestIsSentInPieces(t *testing.T) {
	sent := strings.Repeat("0123456789abcdef", 1<<20) // more than a socket accepts at once
	got := make(chan string, 1)
	target := serveTCP(t, func(conn net.Conn) {
		b := make([]byte, len(sent))
		n, _ := io.ReadFull(conn, b)
		got <- string(b[:n])
		io.WriteString(conn, "done")
		stay(conn)
	})
	result, stepped := nonblocktest.InTime(t, plenty, handler(t, tcpprobe.Config{Port: "db", Send: sent, Expect: "done"}).Handler, target)
	wantResult(t, result, probe.Success, "")
	if !stepped {
		t.Error("it was not made in steps")
	}
	if got := <-got; got != sent {
		t.Errorf("the server got %d bytes, or others, want %d", len(got), len(sent))
	}
}

func TestStepsLeaveNoDescriptorOpen(t *testing.T) {
	listener := listen(t, "tcp", "127.0.0.1:0")
	closedPort := targetOf(listener.Addr())
	listener.Close()
	silent, garrulous := serveTCP(t, stay), serveTCP(t, send(strings.Repeat("x", 2000)))
	full := fullTarget(t)
	before := nonblocktest.Descriptors(t)
	for name, test := range map[string]struct {
		config tcpprobe.Config
		target probe.Target
		ends   nonblock.Event // the event that ends it
	}{
		"done":               {tcpprobe.Config{}, silent, nonblock.StepBegin},
		"refused":            {tcpprobe.Config{}, closedPort, nonblock.StepBegin},
		"a strange source":   {tcpprobe.Config{SourceAddress: "192.0.2.1"}, silent, nonblock.StepBegin},
		"late to connect":    {tcpprobe.Config{}, full, nonblock.StepLate},
		"late to answer":     {tcpprobe.Config{Expect: "x"}, silent, nonblock.StepLate},
		"stopped to connect": {tcpprobe.Config{}, full, nonblock.StepStop},
		"stopped to answer":  {tcpprobe.Config{Expect: "x"}, silent, nonblock.StepStop},
		"answered":           {tcpprobe.Config{Expect: "x"}, garrulous, nonblock.StepReady},
		"left to Probe":      {tcpprobe.Config{ExpectRegex: "y"}, garrulous, nonblock.StepReady},
	} {
		test.config.Port = "db"
		h := handler(t, test.config).Handler
		for range 20 {
			a := nonblock.Attempt{Target: test.target}
			progress := h.Step(&a)
			for end := time.Now().Add(plenty); progress == nonblock.StepWait && time.Now().Before(end); progress = h.Step(&a) {
				a.Event = test.ends
			}
			if progress == nonblock.StepWait || a.FD != -1 {
				t.Errorf("%s: it came to %d with the descriptor %d", name, progress, a.FD)
			}
		}
	}
	nonblocktest.WaitForDescriptors(t, before)
}

func TestWithoutADescriptorAnAttemptIsUnknown(t *testing.T) {
	target := serveTCP(t, stay)
	h := handler(t, tcpprobe.Config{Port: "db"}).Handler
	restore := faulttest.NoDescriptors(t)
	a := nonblock.Attempt{Target: target}
	progress, byProbe := h.Step(&a), h.Probe(t.Context(), target)
	restore()
	wantResult(t, a.Result, probe.Unknown, probe.ReasonResources)
	if got, want := nonblocktest.Normalize(a.Result), nonblocktest.Normalize(byProbe); progress != nonblock.StepDone || got != want {
		t.Errorf("in steps  %d %+v\nby Probe  %+v", progress, got, want)
	}
}

func TestALargeResponseLeavesNoLargeBuffer(t *testing.T) {
	a := nonblock.Attempt{Target: serveTCP(t, send(strings.Repeat("x", probe.MaxDetail)))}
	h := handler(t, tcpprobe.Config{Port: "db", Expect: "y"}).Handler
	progress := h.Step(&a)
	for end := time.Now().Add(plenty); progress == nonblock.StepWait && time.Now().Before(end); progress = h.Step(&a) {
		a.Event = nonblock.StepReady
	}
	wantResult(t, a.Result, probe.Failure, probe.ReasonTCPExpect)
	if cap(a.Buffer) > 4<<10 {
		t.Errorf("it left %d bytes", cap(a.Buffer))
	}
}

func TestAHalfOpenAttemptReturnsItsSocketToTheSpares(t *testing.T) {
	listener := listen(t, "tcp", "127.0.0.1:0").(*net.TCPListener)
	closed := listen(t, "tcp", "127.0.0.1:0")
	closedPort := targetOf(closed.Addr())
	closed.Close()
	h := handler(t, tcpprobe.Config{Port: "db", HalfOpen: true}).Handler
	before := nonblocktest.Descriptors(t)
	spares, first, slow := new(nonblock.Spares), 0, 0
	for i := range 100 {
		start := time.Now()
		result := nonblocktest.Step(t, h, targetOf(listener.Addr()), spares)
		wantResult(t, result, probe.Success, "")
		if time.Since(start) > 30*time.Millisecond {
			slow++
		}
		fd, ok := spares.Take()
		if first = cmp.Or(first, fd); !ok || fd != first || !spares.Put(fd) {
			t.Fatalf("attempt %d left the socket %d, %v, the first one left %d", i, fd, ok, first)
		}
	}
	if got := accepted(t, listener); got > slow {
		t.Errorf("%d of 100 attempts were accepted, and %d were slow enough for it", got, slow)
	}
	wantResult(t, nonblocktest.Step(t, h, closedPort, spares), probe.Failure, probe.ReasonTCPRefused)
	if fd, ok := spares.Take(); ok {
		t.Errorf("a connection that was refused left the socket %d", fd)
	}
	nonblocktest.WaitForDescriptors(t, before)
}

func TestAPlainAttemptReturnsNoSocketToTheSpares(t *testing.T) {
	spares := new(nonblock.Spares)
	for _, c := range []tcpprobe.Config{{}, {Send: "PING"}, {Send: "PING", Expect: "PONG"}, {HalfOpen: true, SourceAddress: "127.0.0.9"}} {
		c.Port = "db"
		wantResult(t, nonblocktest.Step(t, handler(t, c).Handler, serveTCP(t, after("PONG", stay)), spares), probe.Success, "")
		if fd, ok := spares.Take(); ok {
			t.Errorf("%+v left the socket %d", c, fd)
		}
	}
}

func BenchmarkStep(b *testing.B) {
	target := serveTCP(b, func(net.Conn) {})
	silent := targetOf(listen(b, "tcp", "127.0.0.1:0").Addr())
	for _, bench := range []struct {
		name   string
		config tcpprobe.Config
		target probe.Target
	}{
		{"plain", tcpprobe.Config{Port: "db"}, target},
		{"half open", tcpprobe.Config{Port: "db", HalfOpen: true}, silent},
	} {
		b.Run(bench.name, func(b *testing.B) {
			h := handler(b, bench.config)
			var a nonblock.Attempt
			var spares nonblock.Spares
			defer nonblocktest.Close(&spares)
			b.ReportAllocs()
			for b.Loop() {
				a = nonblock.Attempt{Target: bench.target, Buffer: a.Buffer, Spares: &spares}
				if h.Step(&a) != nonblock.StepDone || a.Result.Outcome != probe.Success {
					b.Fatal(a.Result)
				}
			}
		})
	}
}
