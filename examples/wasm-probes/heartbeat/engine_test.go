package main

import (
	"context"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// TestTheEndOfTheConnectionIsDetectedAtOnce kills a service while the next beat is due only in an
// hour.
func TestTheEndOfTheConnectionIsDetectedAtOnce(t *testing.T) {
	port := gatewaytest.FreePort(t)
	demo := lab.Demo(t, "-listen", "127.0.0.1:0", "-slow-start", "0s", "-heartbeat", "127.0.0.1:"+port)
	h, err := lab.Load(t, lab.Build(t, ".")).New(map[string]any{"port": port})
	if err != nil {
		t.Fatal(err)
	}
	target := probe.Target{Name: "demo", Address: "127.0.0.1"}
	rule := probe.Rule{Kind: probe.Liveness, Period: time.Hour, Timeout: lab.Timeout, FailureThreshold: 1}
	p := probe.Probe{Rule: rule, Target: target, Handler: h, HandlerName: "heartbeat"}
	testsync.Until(t, "the service", func() bool { return engine.Once(t.Context(), p).Outcome == probe.Success })
	id := probe.ID{Target: target.Name, Kind: rule.Kind}
	e := engine.New(engine.Config{})
	if _, err := e.Apply(probe.Set{id: p}); err != nil {
		t.Fatal(err)
	}
	e.Report(probe.Instance{Target: target.Name, ID: "a", Phase: probe.Running, Since: time.Now()})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	status := func() engine.Status { s, _ := e.Status(id); return s }
	testsync.Until(t, "the first beat", func() bool { return status().Attempts[probe.Success] > 0 })
	killed := time.Now()
	demo.Kill()
	testsync.Until(t, "the failure", func() bool { return status().Verdict == probe.Failing })
	t.Logf("%v after the service was killed: %s", status().Since.Sub(killed), status().Result.Detail)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
