package daemon

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// stuck is a non-blocking handler that blocks the loop, against its contract, until it is
// released.
type stuck struct {
	probe.HandlerFunc
	release chan struct{}
}

func (s stuck) Step(a *nonblock.Attempt) nonblock.Progress {
	<-s.release
	a.Result = probe.Succeed("")
	return nonblock.StepDone
}

func TestAnEngineIsAliveUnlessItsLoopHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{engine: engine.New(engine.Config{})}
		if d.alive() == nil {
			t.Error("an engine that does not run is alive")
		}
		d.running.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.engine.Run(ctx) }()
		time.Sleep(time.Hour)
		if err := d.alive(); err != nil {
			t.Errorf("an engine without probes: %v", err)
		}
		handler := stuck{release: make(chan struct{})}
		id := probe.ID{Target: "web", Kind: probe.Readiness}
		if _, err := d.engine.Apply(probe.Set{id: {Handler: handler}}); err != nil {
			t.Fatal(err)
		}
		d.engine.Report(probe.Instance{Target: "web", ID: "1", Phase: probe.Running, Since: time.Now()})
		time.Sleep(maxLoopDelay - time.Second)
		if err := d.alive(); err != nil {
			t.Errorf("a loop that was late for a moment: %v", err)
		}
		time.Sleep(10 * time.Second)
		if d.alive() == nil {
			t.Error("an engine whose loop hangs is alive")
		}
		close(handler.release)
		synctest.Wait()
		if err := d.alive(); err != nil {
			t.Errorf("an engine whose loop is back: %v", err)
		}
		cancel()
		<-ended
	})
}
