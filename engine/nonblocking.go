package engine

import (
	"errors"
	"runtime/debug"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/engine/internal/timeline"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// nonBlocking makes the attempts of nonblock.Steppers. The loop owns it: only the loop's goroutine uses it.
type nonBlocking struct {
	clock     *clock.Clock
	monitor   *health.Monitor
	redact    func(string) string
	set       *nonblock.Set // nil before the first attempt waits, and after an error
	failed    *nonblock.Set // the set whose Wait failed; closed before another one is opened
	retryAt   int64         // after an error, the earliest time at which to open a set
	attempts  []*attempt    // waiting attempts, indexed by descriptor, which is also their key in set and deadlines; otherwise nil
	waiting   int           // number of waiting attempts
	limit     int           // maximum number in flight
	deadlines timeline.Timeline
	done      []*attempt // finished, to be completed
	blocking  []*attempt // to be handed over to a worker
	spares    nonblock.Spares
	woke      int64 // when the current wait returned the first ready descriptor; 0 before
	events    int   // number of events since then
}

// exchange is the part of an attempt that only the loop uses.
type exchange struct {
	nonblock.Attempt
	timeout   time.Duration // of each try
	since     int64         // when this try began or started over
	lost      int64         // the monitor's lost time when this try began
	suspended time.Duration // the clock's suspended time when this try began
	steps     int64         // number of steps since then
	again     bool          // this try has started over
	waits     bool          // it waits for the descriptor watched
	watched   int
	tries     uint8
	panics    int
}

// start starts an attempt.
func (n *nonBlocking) start(a *attempt) {
	a.start, a.tries, a.panics = n.clock.Now(), 0, 0
	a.timeout = n.timeout(&a.spec.rule, a.start)
	n.try(a, a.start)
}

// timeout returns the timeout of an attempt that starts now. A degraded engine extends it, unless many attempts are waiting: if
// many targets hang, longer attempts would take the places of others.
func (n *nonBlocking) timeout(r *probe.Rule, now int64) time.Duration {
	if n.waiting > n.limit/2 {
		return r.Timeout
	}
	return timeoutOf(r, n.monitor, now, 0)
}

func (n *nonBlocking) try(a *attempt, now int64) {
	a.tries++
	a.since, a.steps, a.again = now, 0, false
	a.lost, a.suspended = n.monitor.Await(now, now), n.clock.Suspended()
	a.Attempt = nonblock.Attempt{Target: a.Target, Buffer: a.Buffer, Spares: &n.spares, Wake: a.wake}
	n.step(a, nonblock.StepBegin)
}

// step passes an event to the handler, and acts on its progress.
func (n *nonBlocking) step(a *attempt, ev nonblock.Event) {
	progress := a.step(ev)
	if progress == nonblock.StepWait && ev <= nonblock.StepReady && n.await(a) {
		return
	}
	if progress == nonblock.StepWait { // the descriptor cannot be waited for, or the attempt should have ended
		a.step(nonblock.StepStop)
		progress = nonblock.StepBlock
	}
	n.unregister(a)
	switch {
	case ev == nonblock.StepStop:
		n.done = append(n.done, a)
	case progress == nonblock.StepBlock && ev != nonblock.StepLate:
		n.blocking = append(n.blocking, a)
	default:
		n.endTry(a, ev)
	}
}

// step passes an event to the handler. A panic ends the try.
func (a *attempt) step(ev nonblock.Event) (progress nonblock.Progress) {
	defer func() {
		if r := recover(); r != nil {
			a.panics++
			a.Result = panicked(r, debug.Stack())
			progress = nonblock.StepDone
		}
	}()
	a.Event = ev
	return a.spec.stepper.Step(&a.Attempt)
}

// await registers an attempt to wait for its descriptor, and reports whether that is possible.
func (n *nonBlocking) await(a *attempt) bool {
	if a.waits && a.watched == a.FD {
		return true
	}
	if a.waits { // the handler continues with another descriptor
		n.unregister(a)
		a.Set = nil
	}
	if a.FD < 0 || !n.open() || a.FD < len(n.attempts) && n.attempts[a.FD] != nil { // the latter: two attempts with one descriptor
		return false
	}
	n.register(a)
	if a.Set == n.set {
		return true
	}
	a.Set = n.set
	return n.set.Add(a.FD, uint32(a.FD)) == nil
}

// retrySet is the time for which workers make all attempts after the system failed to create a set, for lack of descriptors for
// example, or after waiting with a set failed.
const retrySet = int64(time.Second)

// open opens a set if necessary, and reports whether there is one.
func (n *nonBlocking) open() bool {
	if n.set != nil {
		return true
	}
	now := n.clock.Now()
	if now < n.retryAt {
		return false
	}
	n.closeFailed()
	set, err := nonblock.NewSet()
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		n.retryAt = never
	case err != nil:
		n.retryAt = now + retrySet
	default:
		n.set = set
	}
	return n.set != nil
}

// closeFailed closes the failed set. The scheduler must no longer refer to it.
func (n *nonBlocking) closeFailed() {
	if n.failed != nil {
		_ = n.failed.Close() // an error has no consequences
		n.failed = nil
	}
}

// register makes an attempt wait for its descriptor until its deadline.
func (n *nonBlocking) register(a *attempt) {
	if more := a.FD + 1 - len(n.attempts); more > 0 {
		n.attempts = append(n.attempts, make([]*attempt, more)...)
	}
	n.attempts[a.FD] = a
	n.deadlines.Set(uint32(a.FD), a.since+int64(a.timeout))
	a.waits, a.watched = true, a.FD
	n.waiting++
}

// unregister ends an attempt's wait, because its descriptor is closed, or may be used by another attempt.
func (n *nonBlocking) unregister(a *attempt) {
	if !a.waits {
		return
	}
	n.attempts[a.watched] = nil
	n.deadlines.Remove(uint32(a.watched))
	a.waits = false
	n.waiting--
}

// endTry ends a try, and also the attempt unless it is retried. A descriptor that was ready at the deadline is not late: the loop
// handles ready descriptors before it expires attempts.
func (n *nonBlocking) endTry(a *attempt, ev nonblock.Event) {
	res, now := &a.Result, n.clock.Now()
	lost := n.monitor.Await(now, now) - a.lost
	*res = checked(*res, a.timeout, false)
	if suspended := n.clock.Suspended() - a.suspended; suspended > 0 {
		*res = excuseSuspended(*res, suspended)
	}
	switch {
	case ev == nonblock.StepLate:
		if delay, deadline := n.fairDeadline(a); deadline > now {
			*res = excuse(*res, delay, a.timeout)
		}
	case stalled(lost, now-a.since, a.timeout, &a.spec.rule):
		*res = excuse(*res, lost, a.timeout)
	}
	if limitsLatency(&a.spec.rule) {
		*res = judgeLatency(*res, now-a.since, max(lost, n.delayed(a)), &a.spec.rule)
	}
	if a.measures(&a.spec.rule) {
		a.measureTime(now-a.since, max(lost, n.delayed(a)))
	}
	if res.Outcome == probe.Unknown && a.tries < maxTries && maySucceedNow(res, n.monitor, now) {
		n.try(a, now)
		return
	}
	res.Took, res.Tries = time.Duration(now-a.start), a.tries
	if res.Detail != "" {
		res.Detail = probe.CleanText(n.redact(res.Detail), probe.MaxDetail)
	}
	n.done = append(n.done, a)
}

// cancel ends a waiting attempt whose result is no longer needed.
func (n *nonBlocking) cancel(a *attempt) {
	if a.waits {
		n.step(a, nonblock.StepStop)
	}
}

// wait returns after descriptors were ready, an attempt's deadline has passed, the loop was woken, or the time until has come.
func (n *nonBlocking) wait(awakeSince, until int64) {
	if _, deadline, ok := n.deadlines.First(); ok {
		until = min(until, deadline)
	}
	begin := n.clock.Now()
	n.monitor.Await(begin, until)
	n.woke, n.events = 0, 0
	if err := n.set.Wait(max(0, time.Duration(until-begin)), n.ready); err != nil {
		n.fallBack()
		return
	}
	now := n.readClock()
	n.monitor.Worked(now, begin-awakeSince+now-n.woke)
	n.expire(now)
}

// readClock reads the clock while the loop works, and informs the monitor.
func (n *nonBlocking) readClock() (now int64) {
	now = n.clock.Now()
	n.monitor.Await(now, now)
	if n.woke == 0 {
		n.woke = now
	}
	return now
}

// lookEvery is the number of events that the loop may handle without reading the clock.
const lookEvery = 32

func (n *nonBlocking) ready(key uint32) {
	if n.events%lookEvery == 0 {
		n.readClock()
	}
	n.events++
	if a := n.attempts[key]; a != nil {
		a.steps++
		n.step(a, nonblock.StepReady)
	}
}

// expire ends the attempts whose deadlines have passed. A delayed attempt gets more time, so that the target always has its full
// timeout. If the delay exceeds the timeout, packets may also have been lost, and the try starts over, once.
func (n *nonBlocking) expire(now int64) {
	for {
		key, due, ok := n.deadlines.First()
		if !ok || due > now {
			return
		}
		a := n.attempts[key]
		delay, deadline := n.fairDeadline(a)
		if delay >= int64(a.timeout) && !a.again {
			a.since, a.steps, a.again = now, 0, true
			deadline = now + int64(a.timeout)
		}
		if deadline <= now || deadline > a.since+maxTimeouts*int64(a.timeout) {
			n.step(a, nonblock.StepLate)
			continue
		}
		n.deadlines.Set(key, deadline)
	}
}

// maxTimeouts bounds the duration of a delayed try, as a multiple of its timeout.
const maxTimeouts = 10

// maxDelayedSteps bounds the number of steps for which a try gets more time: connecting, sending, and receiving twice. A peer can
// cause more steps than that.
const maxDelayedSteps = 4

// fairDeadline returns the longest delay during a try, and the deadline by which the target has had its timeout even if each step
// so far, and the awaited one, was delayed by that much.
func (n *nonBlocking) fairDeadline(a *attempt) (delay, deadline int64) {
	delay, deadline = n.monitor.Longest(a.since), a.since+int64(a.timeout)
	if notable(delay, a.timeout) {
		deadline += delay * min(a.steps+1, maxDelayedSteps)
	}
	return delay, deadline
}

// delayed returns the maximum time by which the delays of its steps have extended a try.
func (n *nonBlocking) delayed(a *attempt) int64 {
	return n.monitor.Longest(a.since) * min(a.steps+1, maxDelayedSteps)
}

// fallBack hands all attempts over to workers for a while, since the system failed to wait for descriptors.
func (n *nonBlocking) fallBack() {
	n.failed, n.set, n.retryAt = n.set, nil, n.clock.Now()+retrySet
	for _, a := range n.attempts {
		if a != nil {
			a.step(nonblock.StepStop)
			n.unregister(a)
			n.blocking = append(n.blocking, a)
		}
	}
}

// close ends all attempts, and closes the descriptors.
func (n *nonBlocking) close() {
	for _, a := range n.attempts {
		if a != nil {
			n.cancel(a)
		}
	}
	for fd, ok := n.spares.Take(); ok; fd, ok = n.spares.Take() {
		_ = nonblock.CloseDescriptor(fd) // it is closed even after an error
	}
	n.closeFailed()
	if n.set != nil {
		_ = n.set.Close() // errors are ignored
		n.set = nil
	}
}
