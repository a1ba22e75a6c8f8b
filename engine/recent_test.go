package engine_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

func TestLatenciesAreKeptWhileSomebodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var takes atomic.Int64
		takes.Store(int64(20 * time.Millisecond))
		e := engine.New(engine.Config{})
		id := probe.ID{Target: "web", Kind: probe.Readiness}
		attempt := func(context.Context, probe.Target) probe.Result {
			time.Sleep(time.Duration(takes.Load()))
			return probe.Succeed("")
		}
		if _, err := e.Apply(probe.Set{id: {Rule: probe.Rule{Period: time.Second, Timeout: time.Second}, Handler: probe.HandlerFunc(attempt)}}); err != nil {
			t.Fatal(err)
		}
		e.Report(probe.Instance{Target: "web", ID: "web-1", Phase: probe.Running})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go e.Run(ctx)
		latencies := func() engine.Latency {
			t.Helper()
			all := e.Records().Latencies("web")
			if len(all) != 1 || all[0].ID != id {
				t.Fatalf("got %+v", all)
			}
			return all[0]
		}
		time.Sleep(time.Minute)
		if l := latencies(); len(l.Took) != 0 {
			t.Errorf("before somebody looked: %v", l.Took)
		}
		time.Sleep(10 * time.Second)
		takes.Store(int64(300 * time.Millisecond))
		time.Sleep(50 * time.Second)
		l := latencies()
		if len(l.Took) != 30 || time.Since(l.At) > 2*time.Second {
			t.Errorf("got %d until %v", len(l.Took), l.At)
		}
		takes.Store(int64(50 * time.Microsecond))
		time.Sleep(5*time.Second + time.Second/2)
		for i, took := range latencies().Took {
			want := 300 * time.Millisecond
			if i >= 25 {
				want = 50 * time.Microsecond
			}
			if math.Abs(took.Seconds()/want.Seconds()-1) > 0.05 {
				t.Errorf("attempt %d took %v, want %v", i, took, want)
			}
		}
		time.Sleep(11 * time.Minute)
		if l := latencies(); len(l.Took) != 0 {
			t.Errorf("long after somebody looked: %v", l.Took)
		}
		if all := e.Records().Latencies("none"); len(all) != 0 {
			t.Errorf("of no target: %v", all)
		}
	})
}
