package tcpprobe_test

import (
	"context"
	"net"
	"testing"
	"time"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// Readiness and liveness probes with equal blocks share one handler.
func TestTheEndOfAKeptConnectionReachesEachProbeWithTheSameHandler(t *testing.T) {
	server := newPeers(t)
	target := targetOf(server.listener.Addr())
	h, err := tcpprobe.New(tcpprobe.Config{Port: "db", KeepAlive: &tcpprobe.KeepAlive{}})
	if err != nil {
		t.Fatal(err)
	}
	rule := probe.Rule{Period: time.Hour, Timeout: plenty, FailureThreshold: 1}
	set := probe.Set{}
	for _, kind := range []probe.Kind{probe.Readiness, probe.Liveness} {
		set[probe.ID{Target: target.Name, Kind: kind}] = probe.Probe{Rule: rule, Target: target, Handler: h, HandlerName: "tcp"}
	}
	e := engine.New(engine.Config{})
	if _, err := e.Apply(set); err != nil {
		t.Fatal(err)
	}
	e.Report(probe.Instance{Target: target.Name, ID: "1", Phase: probe.Running, Since: time.Now()})
	sub := e.Subscribe()
	defer sub.Close()
	ctx, stop := context.WithTimeout(t.Context(), plenty)
	defer stop()
	ended := make(chan error)
	runs, end := context.WithCancel(ctx)
	go func() { ended <- e.Run(runs) }()
	defer func() { end(); <-ended }()

	waitForVerdicts(t, ctx, sub, probe.Passing, len(set))
	for range set {
		select {
		case conn := <-server.conns:
			conn.(*net.TCPConn).Close()
		case <-ctx.Done():
			t.Fatal("not every probe has a connection of its own")
		}
	}
	waitForVerdicts(t, ctx, sub, probe.Failing, len(set))
}

// waitForVerdicts waits until n probes have a verdict.
func waitForVerdicts(t *testing.T, ctx context.Context, sub *engine.Subscription, want probe.Verdict, n int) {
	t.Helper()
	have := map[probe.ID]bool{}
	for len(have) < n {
		status, err := sub.Next(ctx)
		if err != nil {
			t.Fatalf("%d of %d probes are %v: %v", len(have), n, want, err)
		}
		if status.Verdict == want {
			have[status.ID] = true
		} else {
			delete(have, status.ID)
		}
	}
}
