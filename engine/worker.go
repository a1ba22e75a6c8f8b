package engine

import (
	"sync"

	"github.com/sonde-probe/sonde/probe"
)

// workers are the goroutines that make the attempts of handlers that may block. The loop owns them: it starts each with one
// attempt, and waits for all of them when Run ends.
type workers struct {
	scheduler *scheduler
	running   sync.WaitGroup
}

// start makes an attempt on a new goroutine.
func (w *workers) start(a *attempt) { w.running.Go(func() { w.run(a) }) }

// run makes an attempt, and then further ones as long as attempts wait for a worker.
func (w *workers) run(a *attempt) {
	defer func() {
		if a != nil { // its handler has terminated this goroutine
			w.replace(a)
		}
	}()
	for a != nil {
		res, panics := a.make(w.scheduler.clock, w.scheduler.monitor, w.scheduler.redact)
		a.cancel()
		a = w.scheduler.completeOnWorker(a, &res, panics)
	}
}

// replace completes an attempt whose handler called runtime.Goexit, for example when a test fails inside its handler. A new
// goroutine continues with the waiting attempts.
func (w *workers) replace(a *attempt) {
	a.cancel()
	res := probe.Broken(reasonPanic, "handler called runtime.Goexit")
	res.Tries = 1
	if next := w.scheduler.completeOnWorker(a, &res, 1); next != nil {
		w.start(next)
	}
}
