package icmpprobe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// If root runs the tests, all of them run in their own network.
func TestMain(m *testing.M) { os.Exit(faulttest.Main(m)) }

func newHandler(t testing.TB, c Config) *handler {
	t.Helper()
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h.(*handler)
}

// sysctl sets a sysctl in the network of this test.
func sysctl(t *testing.T, name, value string) {
	t.Helper()
	needRoot(t)
	path := "/proc/sys/net/" + name
	before, err := os.ReadFile(path)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(path, before, 0) })
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network of its own")
	}
}

// ip runs ip(8). The test runs only in .ci/run.
func ip(t *testing.T, line string) {
	t.Helper()
	tier.Needs(t, "ip")
	needRoot(t)
	if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		t.Skipf("ip %s: %v: %s", line, err, out)
	}
}

// bothSockets runs a test with ping sockets and with raw sockets.
func bothSockets(t *testing.T, test func(t *testing.T, onlyRaw bool)) {
	t.Run("ping", func(t *testing.T) {
		sysctl(t, "ipv4/ping_group_range", "0 0")
		test(t, false)
	})
	t.Run("raw", func(t *testing.T) { needRoot(t); test(t, true) })
}

// attempt makes an attempt with plenty of time.
func attempt(t *testing.T, h *handler, address string) probe.Result {
	t.Helper()
	return attemptWithin(t, h, address, 30*time.Second)
}

func attemptWithin(t *testing.T, h *handler, address string, timeout time.Duration) probe.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return h.Probe(ctx, probe.Target{Name: "router", Address: address})
}

func want(t *testing.T, got probe.Result, outcome probe.Outcome, why probe.Reason, text string) {
	t.Helper()
	if got.Outcome != outcome || got.Reason != why || !strings.Contains(got.Detail, text) {
		t.Errorf("got %v %v %q, want %v %v %q", got.Outcome, got.Reason, got.Detail, outcome, why, text)
	}
}

func TestAHostThatRepliesIsThere(t *testing.T) {
	bothSockets(t, func(t *testing.T, onlyRaw bool) {
		for _, c := range []struct {
			address, peer string
			config        Config
		}{
			{"127.0.0.1", "127.0.0.1", Config{}},
			{"127.0.0.9", "127.0.0.9", Config{SourceAddress: "127.0.0.3", TTL: 1}},
			{"::1", "::1", Config{PayloadSize: 16, TTL: 1}},
			{"::1", "::1", Config{SourceAddress: "::1"}},
			{"localhost", "127.0.0.1", Config{IPFamily: "4", DontFragment: true}},
			{"127.0.0.1", "127.0.0.1", Config{PayloadSize: MaxPayload}},
			{"::1", "::1", Config{PayloadSize: MaxPayload}},
		} {
			h := newHandler(t, c.config)
			h.onlyRaw = onlyRaw
			ctx, trace := probe.WithTrace(t.Context())
			r := h.Probe(ctx, probe.Target{Name: "router", Address: c.address})
			if want(t, r, probe.Success, "", ""); r.Timings.FirstByte <= 0 || r.Timings.Connect <= 0 {
				t.Errorf("%s: the timings are %+v", c.address, r.Timings)
			}
			if got := trace(); got.Peer.String() != c.peer || got.HopLimit == 0 {
				t.Errorf("%s: the trace is %+v", c.address, got)
			}
			if isName := c.address == "localhost"; r.Facts().Peer.IsValid() != isName {
				t.Errorf("%s: the facts are %+v", c.address, r.Facts())
			}
		}
	})
}

func TestAHostThatIsSilentFails(t *testing.T) {
	sysctl(t, "ipv4/icmp_echo_ignore_all", "1")
	bothSockets(t, func(t *testing.T, onlyRaw bool) {
		h := newHandler(t, Config{})
		h.onlyRaw = onlyRaw
		want(t, attemptWithin(t, h, "127.0.0.1", 20*time.Millisecond), probe.Failure, probe.ReasonICMPTimeout, "")
	})
}

func TestErrorsOfTheNetworkAreFailures(t *testing.T) {
	bothSockets(t, func(t *testing.T, onlyRaw bool) {
		h := newHandler(t, Config{})
		h.onlyRaw = onlyRaw
		want(t, attempt(t, h, "192.0.2.1"), probe.Failure, probe.ReasonICMPUnreachable, "connect: network is unreachable")

		remove := faulttest.Filter(t, "chain c { type filter hook input priority 0; icmp type echo-request reject with icmp type host-unreachable; }")
		want(t, attempt(t, h, "127.0.0.1"), probe.Failure, probe.ReasonICMPUnreachable, "127.0.0.1 says: host unreachable")
		remove()
		remove = faulttest.Filter(t, "chain c { type filter hook input priority 0; icmp type echo-request reject with icmp type admin-prohibited; }")
		want(t, attempt(t, h, "127.0.0.1"), probe.Failure, probe.ReasonICMPUnreachable, "communication prohibited")
		remove()
		want(t, attempt(t, h, "127.0.0.1"), probe.Success, "", "")
	})
}

// If some of several requests are lost, the result is a warning with their number.
func TestLostRequestsAreAWarning(t *testing.T) {
	bothSockets(t, func(t *testing.T, onlyRaw bool) {
		h := newHandler(t, Config{Count: 3})
		h.onlyRaw = onlyRaw
		want(t, attempt(t, h, "127.0.0.1"), probe.Success, "", "")
		lose := func(rate string) (remove func()) {
			return faulttest.Filter(t, "chain c { type filter hook input priority 0; icmp type echo-request "+rate+" drop; }")
		}
		within := func() probe.Result {
			ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
			defer cancel()
			r := h.Probe(ctx, probe.Target{Name: "host", Address: "127.0.0.1"})
			if ctx.Err() != nil {
				t.Errorf("late: %v", r)
			}
			return r
		}
		remove := lose("limit rate 1/hour burst 2 packets")
		want(t, within(), probe.Warning, "icmp.loss", "2 of 3 requests were not replied to in time")
		remove()
		remove = lose("")
		want(t, within(), probe.Failure, probe.ReasonICMPTimeout, "")
		remove()
		remove = faulttest.Filter(t, "chain c { type filter hook input priority 0; icmp type echo-request reject with icmp type host-unreachable; }")
		want(t, within(), probe.Failure, probe.ReasonICMPUnreachable, "host unreachable")
		remove()
	})
}

// An error because of missing permissions or resources of this machine says nothing about the target.
func TestErrorsOfThisMachineAreUnknown(t *testing.T) {
	bothSockets(t, func(t *testing.T, onlyRaw bool) {
		h := newHandler(t, Config{})
		h.onlyRaw = onlyRaw
		other := newHandler(t, Config{SourceAddress: "192.0.2.9"})
		other.onlyRaw = onlyRaw
		want(t, attempt(t, other, "127.0.0.1"), probe.Unknown, probe.ReasonICMPSource, "cannot assign")
		want(t, attempt(t, h, "fe80::1%none"), probe.Unknown, probe.ReasonICMPSource, "none")

		restore := faulttest.NoDescriptors(t)
		want(t, attempt(t, h, "127.0.0.1"), probe.Unknown, probe.ReasonResources, "too many open files")
		restore()

		faulttest.Filter(t, "chain c { type filter hook output priority 0; icmp type echo-request drop; }")
		want(t, attempt(t, h, "127.0.0.1"), probe.Unknown, probe.ReasonICMPSource, "operation not permitted")
	})
	for number := range dialtest.OwnErrors(t) {
		if got := dial.Classify(t.Context(), dial.Pinging, os.NewSyscallError("sendmsg", number)); got.Outcome != probe.Unknown {
			t.Errorf("%v: got %+v", number, got)
		}
	}
}

// Only the system knows broadcast addresses.
func TestBroadcastsAreRefused(t *testing.T) {
	bothSockets(t, func(t *testing.T, onlyRaw bool) {
		h := newHandler(t, Config{})
		h.onlyRaw = onlyRaw
		want(t, attempt(t, h, "224.0.0.1"), probe.Unknown, probe.ReasonNoAddr, "not the address of one host")

		ip(t, "route add broadcast 198.51.100.255 dev lo")
		t.Cleanup(func() { ip(t, "route del broadcast 198.51.100.255 dev lo") })
		want(t, attempt(t, h, "198.51.100.255"), probe.Unknown, probe.ReasonICMPSource, "permission denied")
	})
}

func TestABigRequestFitsOnlyInFragments(t *testing.T) {
	ip(t, "link set lo mtu 1400")
	t.Cleanup(func() { ip(t, "link set lo mtu 65536") })
	bothSockets(t, func(t *testing.T, onlyRaw bool) {
		for _, address := range []string{"127.0.0.1", "::1"} {
			h := newHandler(t, Config{PayloadSize: 2000})
			h.onlyRaw = onlyRaw
			want(t, attempt(t, h, address), probe.Success, "", "")
			h = newHandler(t, Config{PayloadSize: 2000, DontFragment: true})
			h.onlyRaw = onlyRaw
			want(t, attempt(t, h, address), probe.Failure, probe.ReasonICMPTooBig, "message too long")
		}
	})
}

// Anyone who sees requests can reply to them. Replies without the request's data, or from another address, are ignored.
func TestForgedRepliesAreIgnored(t *testing.T) {
	sysctl(t, "ipv4/icmp_echo_ignore_all", "1")
	forge := func(e []byte, change func([]byte)) []byte {
		reply := append([]byte(nil), e...)
		reply[0], reply[2], reply[3] = typeReply4, 0, 0
		change(reply)
		sum := checksum(reply)
		reply[2], reply[3] = byte(sum>>8), byte(sum)
		return reply
	}
	bothSockets(t, func(t *testing.T, onlyRaw bool) {
		forger, err := net.ListenPacket("ip4:icmp", "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		defer forger.Close()
		elsewhere, err := net.ListenPacket("ip4:icmp", "127.0.0.2")
		if err != nil {
			t.Fatal(err)
		}
		defer elsewhere.Close()
		h := newHandler(t, Config{})
		h.onlyRaw = onlyRaw
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan probe.Result, 1)
		go func() { result <- h.Probe(ctx, probe.Target{Address: "127.0.0.1"}) }()
		request, b := []byte(nil), make([]byte, 1500)
		for request == nil {
			n, _, err := forger.ReadFrom(b)
			if err != nil {
				t.Fatal(err)
			}
			if b[0] == typeRequest4 {
				request = append([]byte(nil), b[:n]...)
			}
		}
		to := &net.IPAddr{IP: net.IPv4(127, 0, 0, 1)}
		for _, forged := range []struct {
			by     net.PacketConn
			packet []byte
		}{
			{forger, forge(request, func(b []byte) { b[5] ^= 1 })},
			{forger, forge(request, func(b []byte) { b[7] ^= 1 })},
			{forger, forge(request, func(b []byte) { b[len(b)-1] ^= 1 })},
			{forger, forge(request, func(b []byte) { b[1] = 1 })},
			{forger, forge(request[:20], func([]byte) {})},
			{elsewhere, forge(request, func([]byte) {})},
		} {
			if _, err := forged.by.WriteTo(forged.packet, to); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case r := <-result:
			t.Errorf("the attempt has ended by a forged reply: %+v", r)
		case <-time.After(50 * time.Millisecond):
			if _, err := forger.WriteTo(forge(request, func([]byte) {}), to); err != nil {
				t.Fatal(err)
			}
			want(t, testsync.Receive(t, "the result", result), probe.Success, "", "")
		}
		cancel()
	})
}

func TestCancellationEndsAnAttemptAtOnce(t *testing.T) {
	sysctl(t, "ipv4/icmp_echo_ignore_all", "1")
	bothSockets(t, func(t *testing.T, onlyRaw bool) {
		h := newHandler(t, Config{})
		h.onlyRaw = onlyRaw
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan probe.Result, 1)
		go func() { result <- h.Probe(ctx, probe.Target{Address: "127.0.0.1"}) }()
		cancel()
		want(t, testsync.Receive(t, "the result", result), probe.Unknown, probe.ReasonStopped, "")
	})
}

// Without permission to send, an attempt is unknown, and the error says how to permit it.
func TestAnAttemptWithoutPermissionIsUnknown(t *testing.T) {
	sysctl(t, "ipv4/ping_group_range", "1 0")
	dropRawSockets(t)
	h := newHandler(t, Config{})
	for _, address := range []string{"127.0.0.1", "::1"} {
		r := attempt(t, h, address)
		want(t, r, probe.Unknown, probe.ReasonPermission, "net.ipv4.ping_group_range")
		if !strings.Contains(r.Detail, "AmbientCapabilities=CAP_NET_RAW") || !r.NoRetry {
			t.Errorf("got %+v", r)
		}
	}
	if err := Permission(); err == nil {
		t.Error("Permission returns no error")
	}
	sysctl(t, "ipv4/ping_group_range", fmt.Sprintf("%d %[1]d", os.Getegid()))
	if err := Permission(); err != nil {
		t.Errorf("with a ping socket: %v", err)
	}
	want(t, attempt(t, h, "127.0.0.1"), probe.Success, "", "")
}

// dropRawSockets removes CAP_NET_RAW from the thread of the test, which is terminated with the test.
func dropRawSockets(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	const capNetRaw, version3 = 13, 0x20080522
	header := struct{ version, pid uint32 }{version: version3}
	var data [2]struct{ effective, permitted, inheritable uint32 }
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0); errno != 0 {
		t.Skip(errno)
	}
	data[0].effective &^= 1 << capNetRaw
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0); errno != 0 {
		t.Fatal(errno)
	}
}

// An ICMP error about a request of another program is ignored.
func TestErrorsAboutRequestsOfOthersAreIgnored(t *testing.T) {
	e := echo{id: 1, seq: 2, payload: []byte("0123456789abcdef")}
	mine, other := e.packet(), (&echo{id: 1, seq: 3, payload: e.payload}).packet()
	if !e.isQuoted(mine) || !e.isQuoted(mine[:headerSize]) || !e.isQuoted(mine[:headerSize+3]) {
		t.Error("its own request is not recognized")
	}
	altered := append([]byte(nil), mine...)
	altered[headerSize] ^= 1
	if e.isQuoted(other) || e.isQuoted(mine[:7]) || e.isQuoted(altered) {
		t.Error("another request is taken for its own")
	}
}

func FuzzExtendedError(f *testing.F) {
	f.Add([]byte{})
	f.Add(append([]byte{113, 0, 0, 0, 2, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0}, 10, 0, 0, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r := parseExtended(b); r != nil && r.from != "" {
			if _, err := netip.ParseAddr(r.from); err != nil {
				t.Error(err)
			}
		}
	})
}

func BenchmarkLoopback(b *testing.B) {
	h := newHandler(b, Config{})
	b.ReportAllocs()
	for b.Loop() {
		if r := h.Probe(b.Context(), probe.Target{Address: "127.0.0.1"}); r.Outcome != probe.Success {
			b.Fatalf("got %+v", r)
		}
	}
}
