package engine

import (
	"context"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/schedule"
)

// loop is the goroutine of Run. It starts due attempts: it makes attempts of non-blocking handlers itself, and passes the others
// to workers.
type loop struct {
	scheduler   *scheduler
	workers     workers
	nonBlocking nonBlocking
	started     []*attempt // started by the scheduler, to be made after its lock is released
	awakeSince  int64
}

const (
	// loopChunk is the number of due probes that are started before the lock is released for other goroutines.
	loopChunk = 256

	// never is the wake-up time if nothing is due.
	never = 1<<63 - 1

	// maxSleep limits how long the loop sleeps while something is due later. Timers stop while the machine is suspended, so after
	// it has resumed the loop may be late by up to maxSleep.
	maxSleep = int64(time.Minute)
)

// run runs until ctx is done and the workers have exited.
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

// stopSleeping wakes the loop if it waits for descriptors, and ensures that its descriptor set is not woken later.
func (l *loop) stopSleeping() {
	sc := l.scheduler
	sc.mu.Lock()
	defer sc.unlock()
	if sc.sleep.set != nil {
		sc.sleep.set.Wake()
		sc.sleep.set = nil
	}
}

// poll starts all due attempts and completes all finished ones, until none of either is left. It returns the time of the next
// poll.
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

// pollOnce makes one pass with the scheduler's lock held: it completes the non-blocking attempts that have finished, starts a
// limited number of due attempts, and returns the canceled attempts. due is the time of the next poll; 0 means now.
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
	if !all || len(l.started)+len(canceled) > 0 || sc.ctx.Err() != nil { // stopSleeping may have been called already
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

// startDue starts up to loopChunk due attempts, and reports whether these were all.
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

// completeDone completes the non-blocking attempts that have finished, and starts queued attempts in their place.
func (l *loop) completeDone() {
	sc := l.scheduler
	now := sc.clock.Now()
	for _, a := range l.nonBlocking.done {
		sc.complete(a, &a.Result, a.panics, now)
		if !a.canceled { // a canceled attempt may still be in sc.canceled
			sc.recycled.put(a)
		}
	}
	l.nonBlocking.done = reset(l.nonBlocking.done)
	for a := sc.nextQueued(schedule.NonBlocking, now); a != nil; a = sc.nextQueued(schedule.NonBlocking, now) {
		l.started = append(l.started, a)
	}
}

// makeStarted makes the attempts that were started, and passes those that may block to workers.
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

// reset clears a list for reuse.
func reset(list []*attempt) []*attempt {
	clear(list)
	return list[:0]
}
