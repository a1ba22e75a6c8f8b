//go:build linux

package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

func TestWitnessMeasuresTheLatenessOfAttempts(t *testing.T) {
	const period = 10 * time.Second
	cases := []struct {
		name    string
		outcome probe.Outcome
		busy    time.Duration // of the only worker, from half a second before an attempt is due
		after   time.Duration // when to read, relative to the due time
		late    time.Duration
	}{
		{"in time", probe.Success, 0, time.Second, 0},
		{"kept waiting", probe.Failure, time.Second, time.Second, time.Second / 2},
		{"still waiting", probe.Failure, time.Hour, 3 * time.Second, 3 * time.Second},
		{"a skipped attempt", probe.Success, time.Second, period + time.Second, period},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				e := engine.New(engine.Config{Concurrency: 1})
				watched := probe.ID{Target: "web", Kind: probe.Liveness}
				w := newWitness(e, []probe.ID{watched})
				set := probe.Set{watched: {Rule: probe.Rule{Period: period, FailureThreshold: 1}, Handler: takes{0, c.outcome}}}
				add(t, e, set, watched)
				go e.Run(ctx)
				go w.watch(ctx)

				time.Sleep(3*period + glance/2)
				if n, p99, worst := w.read(time.Now()); n < 2 || p99 != 0 || worst != 0 {
					t.Errorf("%d attempts in time seem late by %v, at most %v", n, p99, worst)
				}
				due := next(t, e, watched)
				time.Sleep(time.Until(due) - time.Second/2)
				busy := probe.ID{Target: "busy", Kind: probe.Readiness} // attempted immediately
				set[busy] = probe.Probe{Rule: probe.Rule{Period: time.Hour, Timeout: 2 * time.Hour}, Handler: takes{c.busy, probe.Success}}
				add(t, e, set, busy)
				time.Sleep(time.Until(due) + c.after + glance)
				if n, p99, worst := w.read(time.Now()); n != 1 || worst < c.late || worst > c.late+glance || p99 != worst {
					t.Errorf("%d attempts seem late by %v, at most %v, want 1 by %v", n, p99, worst, c.late)
				}
				stop()
				synctest.Wait()
			})
		})
	}
}

// takes is a handler whose attempts take a fixed time.
type takes struct {
	d       time.Duration
	outcome probe.Outcome
}

func (h takes) Probe(ctx context.Context, _ probe.Target) probe.Result {
	select {
	case <-time.After(h.d):
	case <-ctx.Done():
	}
	return probe.Result{Outcome: h.outcome}
}

// add applies a set with a new probe, and reports an instance of its target.
func add(t *testing.T, e *engine.Engine, set probe.Set, id probe.ID) {
	t.Helper()
	if _, err := e.Apply(set); err != nil {
		t.Fatal(err)
	}
	e.Report(probe.Instance{Target: id.Target, ID: "1", Phase: probe.Running, Since: time.Now()})
}

// next returns the due time of a probe's next attempt.
func next(t *testing.T, e *engine.Engine, id probe.ID) time.Time {
	t.Helper()
	st, ok := e.Status(id)
	if !ok || st.Next.IsZero() {
		t.Fatalf("%v has no next attempt", id)
	}
	return st.Next
}
