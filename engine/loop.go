package engine

import (
	"context"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/schedule"
)

// loop is Run's goroutine. It starts the attempts that are due: it makes those of
// non-blocking handlers itself, and gives the others to workers.
type loop struct {
	scheduler   *scheduler
	workers     workers
	nonBlocking nonBlocking
	started     []*attempt // by the scheduler, to be made once its lock is free
	awakeSince  int64
}

const (
	// loopChunk is how many due probes are started before other goroutines may have
	// the lock.
	loopChunk = 256

	// never is when the loop wakes up if nothing is due.
	never = 1<<63 - 1

	// maxSleep is how long the loop sleeps at most while something is due later: timers stand still while
	// the machine is suspended, so that it is late by as much when the machine goes on.
	maxSleep = int64(time.Minute)
)

// run returns when ctx is done and the workers have ended.
func (l *loop) run(ctx context.Context) {
	defer l.workers.running.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer context.AfterFunc(ctx, l.stopSleeping)()
	m := l.scheduler.monitor
	defer func() { m.Await(l.scheduler.clock.Now(), never) }()
	for ctx.Err() == nil {
		l.awakeSince = l.scheduler.clock.Now()
		m.Await(l.awakeSince, l.awakeSince)
		due := l.poll(ctx)
		if ctx.Err() != nil {
			break
		}
		if l.nonBlocking.waiting > 0 {
			l.nonBlocking.wait(l.awakeSince, due)
			continue
		}
		now := l.scheduler.clock.Now()
		m.Await(now, due)
		timer.Stop()
		if due != never {
			timer.Reset(time.Duration(due - now))
		}
		select {
		case <-ctx.Done():
		case <-l.scheduler.sleep.wake:
		case <-timer.C:
		}
	}
	l.stopSleeping()
	l.nonBlocking.close()
	l.scheduler.passDue.Store(0)
}

// stopSleeping wakes the loop if it waits for descriptors, and keeps others from
// doing so.
func (l *loop) stopSleeping() {
	sc := l.scheduler
	sc.mu.Lock()
	defer sc.unlock()
	if sc.sleep.set != nil {
		sc.sleep.set.Wake()
		sc.sleep.set = nil
	}
}

// poll starts everything that is due and completes what has ended, until there is no
// more of either. It returns when to poll again.
func (l *loop) poll(ctx context.Context) (due int64) {
	for ctx.Err() == nil {
		canceled, due := l.pollOnce()
		for _, a := range canceled {
			l.nonBlocking.cancel(a)
		}
		l.makeStarted()
		if due != 0 {
			return due
		}
	}
	return never
}

// pollOnce makes one pass with the scheduler's lock held: it completes the
// non-blocking attempts that have ended, starts some that are due, and returns those
// that were canceled. Due is when to poll again; 0 means now.
func (l *loop) pollOnce() (canceled []*attempt, due int64) {
	sc := l.scheduler
	sc.mu.Lock()
	defer sc.unlock()
	sc.sleep.until, sc.sleep.set = 0, nil
	sc.setPassDue(sc.clock.Now())
	l.completeDone()
	judge{sc}.settle(sc.clock.Now())
	all := l.startDue()
	canceled, sc.canceled = sc.canceled, nil
	if !all || len(l.started)+len(canceled) > 0 || sc.ctx.Err() != nil { // stopSleeping may have come already
		return canceled, 0
	}
	now := sc.clock.Now()
	sc.monitor.Await(now, now)
	sc.summaries.advance(sc.slots, now)
	sc.out.log(sc.log.firsts.check(now))
	sc.out.log(sc.log.health.check(sc.monitor, now))
	sc.counters.busy += time.Duration(now - l.awakeSince)
	if due = sc.nextDue(); due != never {
		due = min(due, now+maxSleep)
	}
	if sc.timetable.schedule.InFlight() > 0 {
		due = min(due, now+int64(sc.tick))
	} else {
		sc.tick = maxTick
	}
	sc.sleep.until = due
	sc.setPassDue(due)
	if l.nonBlocking.waiting > 0 {
		sc.sleep.set = l.nonBlocking.set
	}
	return nil, due
}

// startDue starts some of what is due, and reports whether it was all.
func (l *loop) startDue() bool {
	sc := l.scheduler
	now := sc.clock.Now()
	sc.monitor.Await(now, now)
	for range loopChunk {
		key, due, ok := sc.timetable.schedule.Pop(now)
		if !ok {
			return true
		}
		if a := sc.tryStart(sc.slots[key], due, now); a != nil {
			l.started = append(l.started, a)
		}
	}
	return false
}

// completeDone completes the non-blocking attempts that have ended, and starts those
// that have waited for them.
func (l *loop) completeDone() {
	sc := l.scheduler
	now := sc.clock.Now()
	for _, a := range l.nonBlocking.done {
		sc.complete(a, &a.Result, a.panics, now)
		if !a.canceled { // sc.canceled may still hold a canceled one
			sc.recycled.put(a)
		}
	}
	l.nonBlocking.done = reset(l.nonBlocking.done)
	for a := sc.nextQueued(schedule.NonBlocking, now); a != nil; a = sc.nextQueued(schedule.NonBlocking, now) {
		l.started = append(l.started, a)
	}
}

// makeStarted makes the attempts that were started, and gives those to workers that
// need one.
func (l *loop) makeStarted() {
	for _, a := range l.started {
		if a.cancel != nil {
			l.workers.start(a)
		} else {
			l.nonBlocking.start(a)
		}
	}
	l.started = reset(l.started)
	for _, a := range l.nonBlocking.blocking {
		switch now, canceled := l.scheduler.handOff(a); {
		case canceled:
			l.nonBlocking.done = append(l.nonBlocking.done, a)
		case now:
			l.workers.start(a)
		}
	}
	l.nonBlocking.blocking = reset(l.nonBlocking.blocking)
}

// reset empties a list so that it can be filled again.
func reset(list []*attempt) []*attempt {
	clear(list)
	return list[:0]
}
