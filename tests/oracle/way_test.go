package oracle

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// way is how Sonde's side makes an attempt.
type way struct {
	name    string
	inSteps bool
	attempt func(*testing.T, probe.Probe) probe.Result
}

// ways returns both ways: by Probe, and non-blocking if the handler supports it.
func ways() []way {
	return []way{
		{"by Probe", false, func(_ *testing.T, p probe.Probe) probe.Result { return engine.Once(context.Background(), p) }},
		{"in steps", true, inSteps},
	}
}

// inSteps makes an attempt by a running engine.
func inSteps(t *testing.T, p probe.Probe) (result probe.Result) {
	id := probe.ID{Target: p.Target.Name, Kind: probe.Readiness}
	p.Rule.Period = time.Hour
	e := engine.New(engine.Config{})
	if _, err := e.Apply(probe.Set{id: p}); err != nil {
		t.Fatal(err)
	}
	e.Report(probe.Instance{Target: id.Target, ID: "1", Phase: probe.Running, Since: time.Now()})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	defer running.Wait()
	defer cancel()
	testsync.Until(t, "an attempt of "+id.String(), func() bool {
		st, _ := e.Status(id)
		result = st.Result
		return !st.ResultAt.IsZero()
	})
	return result
}

// lessOne removes the first request if there is one more than expected: Probe repeats a request whose response a non-blocking
// attempt cannot handle.
func lessOne(requests []string, wanted int) []string {
	if len(requests) == wanted+1 && len(requests) > 1 && requests[0] == requests[1] {
		return requests[1:]
	}
	return requests
}
