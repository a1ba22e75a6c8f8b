package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// TestAllMethodsMayBeCalledAtOnce is for the race detector: targets are added and removed by Report and by Apply while both run,
// and while all readers read.
func TestAllMethodsMayBeCalledAtOnce(t *testing.T) {
	const rounds, targets = 60, 40
	e := engine.New(engine.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- e.Run(ctx) }()
	sub := e.Subscribe()
	defer sub.Close()

	id := func(i int) probe.ID { return probe.ID{Target: fmt.Sprint(i), Kind: probe.Readiness} }
	var callers sync.WaitGroup
	call := func(f func(round int)) {
		callers.Go(func() {
			for round := range rounds {
				f(round)
			}
		})
	}
	call(func(round int) {
		set := probe.Set{}
		for i := range targets {
			if i%3 != round%3 {
				p := with(says(probe.Success))
				p.Rule.Period = probe.MinPeriod
				p.Target.Address = fmt.Sprintf("192.0.2.%d", round%5)
				set[id(i)] = p
			}
		}
		if _, err := e.Apply(set); err != nil {
			t.Error(err)
		}
	})
	call(func(round int) {
		for i := range 2 * targets { // half of the targets never have a probe
			in := probe.Instance{Target: fmt.Sprint(i), ID: fmt.Sprint(round), Phase: probe.Running, Since: time.Now()}
			if round%2 == 1 {
				in.Phase = probe.Gone
			}
			e.Report(in)
		}
	})
	call(func(round int) {
		for i := range targets {
			e.Status(id(i))
			e.Target(fmt.Sprint(i))
			e.Trigger(id(i))
			if g, ok := e.Watch(id(i)); ok {
				g.Passing()
			}
			if g, ok := e.WatchTarget(fmt.Sprint(i)); ok {
				g.Gateway()
			}
			e.SuccessDurations(id(i))
		}
	})
	call(func(int) {
		for range e.All() {
		}
		for range e.Select(context.Background(), engine.Filter{}) {
		}
		e.Stats()
		e.Subscribe().Close()
	})
	callers.Wait()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
