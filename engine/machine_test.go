package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
)

// running runs f with an engine that probes twelve names once an hour, at threshold 1.
func running(t *testing.T, h probe.Handler, f func(e *Engine)) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		set := probe.Set{}
		for i := range 12 {
			target := fmt.Sprint("t", i)
			set[probe.ID{Target: target, Kind: probe.Readiness}] = probe.Probe{
				Handler: h, Target: probe.Target{Address: fmt.Sprintf("h%d.test", i)},
				Rule: probe.Rule{Period: time.Hour, Timeout: time.Hour, FailureThreshold: 1},
			}
			e.Report(probe.Instance{Target: target, ID: "a", Phase: probe.Running})
		}
		if _, err := e.Apply(set); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		f(e)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A name may begin to refer to this machine while the result of an attempt is unsettled.
func TestAnUnsettledResultOfATargetThatBecomesLocalCounts(t *testing.T) {
	var fails atomic.Bool
	h := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
		res := probe.Succeed("")
		if fails.Load() {
			res = probe.Fail(probe.ReasonTCPUnreachable, "no route to host")
		}
		res.Timings.Resolve = time.Millisecond
		return res
	})
	running(t, h, func(e *Engine) {
		fails.Store(true)
		time.Sleep(time.Hour - time.Second)
		synctest.Wait()
		id := probe.ID{Target: "t3", Kind: probe.Readiness}
		if st, _ := e.Status(id); !st.Attempting || st.Verdict != probe.Passing {
			t.Fatalf("the result is settled: %+v", st)
		}
		sc := e.scheduler
		sc.setMachine(machine{name: "h3.test"})
		sc.mu.Lock()
		judge{sc}.settle(sc.clock.Now() + int64(time.Hour))
		sc.unlock()
		if st, _ := e.Status(id); st.Verdict != probe.Failing {
			t.Errorf("got %+v", st)
		}
	})
}

func TestWithoutDescriptorsTheMachineKeepsItsAddresses(t *testing.T) {
	before := machine{name: "before", addresses: map[netip.Addr]bool{netip.MustParseAddr("10.9.9.9"): true}}
	restore := faulttest.NoDescriptors(t)
	defer restore()
	if m, err := readMachine(before); !errors.Is(err, syscall.EMFILE) || m.peerOf("10.9.9.9") != 0 {
		t.Fatalf("got %+v, %v", m, err)
	}
	running(t, probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Succeed("") }), func(e *Engine) {
		time.Sleep(30 * time.Second) // the last try was 30 or 90 seconds ago
		restore()
		time.Sleep(time.Minute)
		synctest.Wait()
		e.scheduler.mu.Lock()
		defer e.scheduler.mu.Unlock()
		if len(e.scheduler.peers.machine.addresses) == 0 {
			t.Error("the addresses were not read again")
		}
	})
}

func TestNamesOfThisMachine(t *testing.T) {
	m := machine{name: "web1.example.com"}
	for host, isLocal := range map[string]bool{
		"web1.example.com": true, "WEB1.example.com.": true, "web1": true, "": true,
		"web": false, "web1.example": true, "web2.example.com": false, "example.com": false,
	} {
		if got := m.peerOf(host) == 0; got != isLocal {
			t.Errorf("%q is local: %v, want %v", host, got, isLocal)
		}
	}
}

func TestEvidenceOfAnAttempt(t *testing.T) {
	for _, test := range []struct {
		name              string
		res               probe.Result
		late              bool
		answered, missing responders
	}{
		{"a command that fails", probe.Fail(probe.ReasonExecExit, ""), false, 0, 0},
		{"a command that hangs", probe.Fail(probe.ReasonExecTimeout, ""), true, 0, 0},
		{"a command that exits while it is killed", probe.Fail(probe.ReasonExecExit, ""), true, 0, 0},
		{"a plugin that fails before it is connected", probe.Fail("redis.down", ""), false, 0, 0},
		{"a plugin that waits until its deadline", probe.Fail("redis.down", ""), true, 0, theTarget},
		{"a plugin that has connected", withTimings(probe.Fail("redis.down", ""), probe.Timings{Connect: 1}), false, 0, theTarget},
		{"a plugin that has received something", withTimings(probe.Fail("redis.down", ""), probe.Timings{Connect: 1, FirstByte: 1}), true, theTarget, 0},
		{"a name that does not exist", withTimings(probe.Fail(probe.ReasonDNSNotFound, ""), probe.Timings{Resolve: 1}), false, nameServer, 0},
		{"a dead name server", withTimings(probe.Fail(probe.ReasonDNSTimeout, ""), probe.Timings{Resolve: 1}), true, 0, nameServer},
		{"a name whose target is silent", withTimings(probe.Fail(probe.ReasonTCPTimeout, ""), probe.Timings{Resolve: 1}), true, nameServer, theTarget},
		{"a success", withTimings(probe.Succeed(""), probe.Timings{Connect: 1}), false, theTarget, 0},
		{"one of two addresses is silent", withTimings(probe.Warn(probe.ReasonTCPTimeout, ""), probe.Timings{Resolve: 1, Connect: 1}), false, theTarget | nameServer, 0},
		{"a success without the network", probe.Succeed(""), false, 0, 0},
	} {
		test.res.Took = time.Hour // no information: the timeout may have been longer
		if answered, missing := evidenceOf(&test.res, test.late); answered != test.answered || missing != test.missing {
			t.Errorf("%s: got %b and %b, want %b and %b", test.name, answered, missing, test.answered, test.missing)
		}
	}
}

func withTimings(r probe.Result, t probe.Timings) probe.Result {
	r.Timings = t
	return r
}

func TestLinkLocalAddressesAreNoOtherMachine(t *testing.T) {
	of := func(name string, addresses ...string) machine {
		m := machine{name: name, addresses: map[netip.Addr]bool{}}
		for _, a := range addresses {
			m.addresses[netip.MustParseAddr(a)] = true
		}
		return m
	}
	before := of("h1.test", "10.0.0.1", "fe80::1", "2001:db8::1")
	tests := map[string]struct {
		now  machine
		want bool
	}{
		"another container runs":       {of("h1.test", "10.0.0.1", "fe80::1", "fe80::2", "2001:db8::1"), false},
		"a container has ended":        {of("h1.test", "10.0.0.1", "2001:db8::1"), false},
		"another address of IPv6":      {of("h1.test", "10.0.0.1", "fe80::1", "2001:db8::2"), true},
		"another address of IPv4":      {of("h1.test", "10.0.0.2", "fe80::1", "2001:db8::1"), true},
		"a link-local address of IPv4": {of("h1.test", "10.0.0.1", "169.254.0.1", "fe80::1", "2001:db8::1"), true},
		"another name":                 {of("h2.test", "10.0.0.1", "fe80::1", "2001:db8::1"), true},
	}
	for name, test := range tests {
		if got := test.now.differs(before); got != test.want {
			t.Errorf("%s: differs %v, want %v", name, got, test.want)
		}
	}
}
