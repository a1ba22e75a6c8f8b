package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/nonblocktest"
)

func TestThereAreNoBeatsWhileTheLoopHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := &daemon{engine: engine.New(engine.Config{}), queue: cli.NewLogQueue(&log)}
		level := &slog.LevelVar{}
		d.log = d.queue.Logger("json", level)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		var beats atomic.Int64
		go func() {
			defer close(ended)
			d.beat(ctx, time.Minute, func() { beats.Add(1) })
		}()
		beatsIn := func(period time.Duration) int64 {
			before := beats.Load()
			time.Sleep(period)
			synctest.Wait()
			return beats.Load() - before
		}
		if n := beatsIn(100 * time.Second); n != 100 {
			t.Errorf("%d beats in 100 s before the engine runs", n)
		}
		running := make(chan error, 1)
		go func() { running <- d.engine.Run(ctx) }()
		if n := beatsIn(100 * time.Second); n != 100 {
			t.Errorf("%d beats in 100 s of an engine without probes", n)
		}
		handler := nonblocktest.Stuck{Release: make(chan struct{})}
		if _, err := d.engine.Apply(probe.Set{{Target: "web", Kind: probe.Readiness}: {Handler: handler}}); err != nil {
			t.Fatal(err)
		}
		d.engine.Report(probe.Instance{Target: "web", ID: "1", Phase: probe.Running, Since: time.Now()})
		beatsIn(10 * time.Second) // the first attempt hangs
		if n := beatsIn(100 * time.Second); n != 0 {
			t.Errorf("%d beats in 100 s of a loop that hangs", n)
		}
		close(handler.Release)
		if n := beatsIn(100 * time.Second); n < 99 {
			t.Errorf("%d beats in 100 s of a loop that is back", n)
		}
		cancel()
		<-ended
		<-running
		d.queue.Close(flushTimeout)
		if text := log.String(); strings.Count(text, "the engine hangs") != 1 || !strings.Contains(text, "nonblocktest.Stuck") {
			t.Errorf("the log is %.1000s", text)
		}
	})
}
