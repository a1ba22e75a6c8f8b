package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/nonblocktest"
)

func TestLoopDelayIsThatOfALoopThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{})
		if e.LoopDelay() != 0 {
			t.Errorf("before Run the delay is %v", e.LoopDelay())
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		time.Sleep(time.Hour)
		if e.LoopDelay() != 0 {
			t.Errorf("with nothing due the delay is %v", e.LoopDelay())
		}
		handler := nonblocktest.Stuck{Release: make(chan struct{})}
		id := probe.ID{Target: "web", Kind: probe.Readiness}
		if _, err := e.Apply(probe.Set{id: {Handler: handler, Rule: probe.Rule{Period: 10 * time.Minute}}}); err != nil {
			t.Fatal(err)
		}
		e.Report(probe.Instance{Target: "web", ID: "1", Phase: probe.Running, Since: time.Now()})
		time.Sleep(time.Hour)
		if d := e.LoopDelay(); d < 50*time.Minute || d > time.Hour {
			t.Errorf("the delay is %v while the loop hangs", d)
		}
		close(handler.Release)
		synctest.Wait()
		for range 5 { // between attempts, and when the loop has just made one
			time.Sleep(150 * time.Second)
			synctest.Wait()
			if e.LoopDelay() != 0 {
				t.Errorf("the delay is %v while the loop sleeps", e.LoopDelay())
			}
		}
		cancel()
		<-ended
		time.Sleep(time.Hour)
		if e.LoopDelay() != 0 {
			t.Errorf("after Run the delay is %v", e.LoopDelay())
		}
	})
}
