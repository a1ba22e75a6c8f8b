package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// countdown is a handler whose targets respond immediately. It is done after a number of attempts.
type countdown struct {
	left   int64
	result probe.Result
	done   chan struct{}
}

func (c *countdown) Step(a *nonblock.Attempt) nonblock.Progress {
	if c.left--; c.left == 0 {
		close(c.done)
	}
	a.Result = c.result
	return nonblock.StepDone
}

func (c *countdown) Probe(context.Context, probe.Target) probe.Result {
	panic("its attempts never block")
}

// BenchmarkAttempt measures the engine's own cost of a non-blocking attempt, with more due probes than it can attempt.
func BenchmarkAttempt(b *testing.B) {
	const probes = 100_000
	connected := probe.Result{Outcome: probe.Success, Timings: probe.Timings{Connect: time.Millisecond}}
	c := &countdown{left: int64(b.N), result: connected, done: make(chan struct{})}
	e := engine.New(engine.Config{StartRate: 1e9})
	set := probe.Set{}
	for i := range probes {
		id := probe.ID{Target: fmt.Sprintf("shop/%d", i), Kind: probe.Readiness}
		set[id] = probe.Probe{Handler: c, HandlerName: "countdown", Rule: probe.Rule{Period: probe.MinPeriod}, Target: probe.Target{Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)}}
	}
	if _, err := e.Apply(set); err != nil {
		b.Fatal(err)
	}
	for id := range set {
		e.Report(probe.Instance{Target: id.Target, ID: "static", Phase: probe.Running, Since: time.Now()})
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	b.ResetTimer()
	b.ReportAllocs()
	go func() { ended <- e.Run(ctx) }()
	<-c.done
	b.StopTimer()
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
