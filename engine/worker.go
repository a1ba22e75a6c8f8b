package engine

import "sync"

// workers are the goroutines that make the attempts of handlers that may block. The
// loop owns them: it starts each with one attempt, and waits for all when Run ends.
type workers struct {
	scheduler *scheduler
	running   sync.WaitGroup
}

// start makes an attempt on a goroutine of its own.
func (w *workers) start(a *attempt) { w.running.Go(func() { w.run(a) }) }

// run makes an attempt, and then others for as long as there are some that wait for
// a worker.
func (w *workers) run(a *attempt) {
	for a != nil {
		res, panics := makeAttempt(a.ctx, a.probe, a.wake, w.scheduler.monitor)
		a.cancel()
		a = w.scheduler.completeOnWorker(a, &res, panics)
	}
}
