package icmpprobe

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// sockets counts the open sockets of this process.
func sockets(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// silence makes this machine ignore requests until speak is called.
func silence(t *testing.T) (speak func()) {
	sysctl(t, "ipv4/icmp_echo_ignore_all", "1")
	return func() { sysctl(t, "ipv4/icmp_echo_ignore_all", "0") }
}

// A reload and the end of the engine abandon attempts that wait for replies: these have no result, and leave no open socket.
func TestAReloadAndTheEndGiveUpAttemptsUnderWay(t *testing.T) {
	bothSockets(t, func(t *testing.T, onlyRaw bool) {
		speak, before := silence(t), sockets(t)
		const targets = 20
		set := func(payload int) probe.Set {
			all := probe.Set{}
			for n := range targets {
				h := newHandler(t, Config{PayloadSize: payload})
				h.onlyRaw = onlyRaw
				all[probe.ID{Target: string(rune('a' + n)), Kind: probe.Readiness}] = probe.Probe{
					Rule: probe.Rule{Period: time.Hour, Timeout: time.Hour, FailureThreshold: 1}, Target: probe.Target{Address: "127.0.0.1", Static: true}, Handler: h, Revision: string(rune('a' + payload)),
				}
			}
			return all
		}
		e := engine.New(engine.Config{})
		apply := func(s probe.Set) {
			t.Helper()
			if _, err := e.Apply(s); err != nil {
				t.Fatal(err)
			}
		}
		waiting := func(n int) func() bool { return func() bool { return sockets(t) == before+n } }
		apply(set(16))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		testsync.Until(t, "attempts to wait for replies", waiting(targets))

		speak() // earlier requests get no reply
		apply(set(17))
		for id := range set(17) {
			testsync.Until(t, "the new probe of "+id.Target, func() bool { st, _ := e.Status(id); return st.Verdict == probe.Passing && st.Decided })
			if st, _ := e.Status(id); st.Result.Outcome != probe.Success {
				t.Errorf("%v has the result %+v", id, st.Result)
			}
		}
		testsync.Until(t, "the sockets to be closed", waiting(0))

		silence(t)
		apply(set(18))
		testsync.Until(t, "other attempts to wait", waiting(targets))
		stop()
		if err := testsync.Receive(t, "the end of the engine", ended); err != nil {
			t.Error(err)
		}
		testsync.Until(t, "their sockets to be closed", waiting(0))
	})
}
