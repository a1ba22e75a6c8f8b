package restart

import (
	"cmp"
	"context"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// life is one life of a unit, from the call of its driver to the return. It
// belongs to its keeper's goroutine.
type life struct {
	*keeper
	cancel context.CancelFunc
	began  chan string        // capacity 1
	end    chan time.Duration // capacity 1
	exit   chan Exit          // capacity 1
	again  *time.Timer        // when to look at the probes again

	id        string    // empty until it has begun
	since     time.Time // when it began
	notBefore time.Time // no end is asked for earlier; while leaving, the life is not let go earlier
	asks      int       // ends asked for in a row
	paid      bool      // the budget has allowed the end
	leaving   bool      // it ends since the unit is not kept as it is
}

// live makes one life and returns how it ended. An end that a probe causes is not
// asked for before the given time when the life is external.
func (k *keeper) live(notBefore time.Time) ending {
	ctx, cancel := context.WithCancel(k.control.killed)
	defer cancel()
	l := &life{
		keeper: k, cancel: cancel, notBefore: notBefore,
		began: make(chan string, 1), end: make(chan time.Duration, 1), exit: make(chan Exit, 1),
		again: time.NewTimer(0),
	}
	defer l.again.Stop()
	driver := k.unit.Driver
	go func() { l.exit <- driver.Run(ctx, l.tell, l.end) }()
	for {
		select {
		case id := <-l.began:
			l.begin(id)
		case exit := <-l.exit:
			return l.over(exit)
		case <-l.wake:
		case <-l.again.C:
		}
		l.look()
	}
}

// tell is what the driver calls when the life has begun.
func (l *life) tell(id string) {
	select {
	case l.began <- id:
	default: // it has said so before
	}
}

func (l *life) begin(id string) {
	if l.id != "" || id == "" {
		return
	}
	l.id, l.since = id, time.Now()
	in := probe.Instance{
		Target: l.target, ID: id, Phase: probe.Running, Since: l.since,
		Managed: l.unit.heeds(), Leaving: l.leaving, Restarts: l.lives, Detail: l.past,
	}
	l.lives++
	l.report(in)
	l.log.Info("instance began", "instance", id, "restarts", in.Restarts)
}

// look does what unit and probes ask for now.
func (l *life) look() {
	now := time.Now()
	switch {
	case l.leaving && l.unit.external() && !now.Before(l.notBefore):
		l.cancel()
	case l.leaving:
	case !l.kept():
		l.leave(now)
	case l.id == "":
	case l.unit.heeds():
		l.judge(now)
	default:
		l.mark(false, "")
	}
}

// judge asks for the life's end when a probe fails and nothing speaks against it.
// An instance that has to wait is not managed meanwhile, so that its probes go on
// and may recover.
func (l *life) judge(now time.Time) {
	failing, fails := l.failing()
	switch {
	case l.dying() && now.Before(l.notBefore):
		l.again.Reset(l.notBefore.Sub(now)) // it has its time to end
	case !fails:
		l.recovered()
	case l.dying():
		l.asks++
		l.postpone(now, now.Add(l.unit.BackOff.wait(l.asks)), probe.ReasonEnding, failing)
	case now.Before(l.notBefore):
		reason := probe.ReasonBackOff
		if l.asks > 0 {
			reason = probe.ReasonEnding
		}
		l.postpone(now, l.notBefore, reason, failing)
	case !l.pay(now, failing):
	default:
		l.ask(now, failing)
	}
}

// failing returns the first startup or liveness probe that fails this life.
// Readiness ends nothing (K137), and a verdict about another life does not count.
func (l *life) failing() (engine.Status, bool) {
	target, _ := l.control.config.Engine.Target(l.target)
	for _, p := range target.Probes {
		if p.Verdict == probe.Failing && p.Instance == l.id && p.ID.Kind != probe.Readiness {
			return p, true
		}
	}
	return engine.Status{}, false
}

// pay takes the end from the budget, once, or waits until it allows it.
func (l *life) pay(now time.Time, failing engine.Status) bool {
	if l.paid {
		return true
	}
	again, ok := l.control.spend(now)
	if !ok {
		l.postpone(now, again, probe.ReasonBudget, failing)
	}
	l.paid = ok
	return ok
}

// postpone looks again at a time, and says why.
func (l *life) postpone(now, until time.Time, reason probe.Reason, failing engine.Status) {
	if reason != probe.ReasonBudget {
		l.notBefore = until
	}
	l.again.Reset(until.Sub(now))
	if !l.mark(false, reason) {
		return
	}
	l.log.Info("instance fails and waits for its end", "instance", l.id, "probe", failing.ID.String(), "reason", reason, "wait", until.Sub(now).Round(time.Millisecond))
}

// dying reports whether the driver was asked for the end and is expected to bring
// it about.
func (l *life) dying() bool { return l.asks > 0 && l.in.Managed }

// force is how long a driver has to end a life by force, after its grace period.
const force = 5 * time.Second

// ask asks the driver for the end, within the grace period of the failing probe or
// else the unit's (K139).
func (l *life) ask(now time.Time, failing engine.Status) {
	grace := cmp.Or(failing.Rule.TerminationGracePeriod, l.unit.TerminationGracePeriod)
	l.asks = max(l.asks, 1)
	l.notBefore = now.Add(grace + force)
	l.again.Reset(l.notBefore.Sub(now))
	l.mark(true, probe.ReasonEnding)
	l.log.Info("instance fails and is ended", "instance", l.id, "probe", failing.ID.String(), "why", failing.Result.Reason, "grace", grace)
	l.send(grace)
}

// recovered takes back what was said while a probe failed.
func (l *life) recovered() {
	if !l.mark(true, "") {
		return
	}
	l.asks, l.paid = 0, false
	l.log.Info("instance recovered", "instance", l.id)
}

// mark reports whether the instance is managed and why it is as it is, when that
// is news.
func (l *life) mark(managed bool, why probe.Reason) bool {
	in := l.in
	in.Managed, in.Reason = managed, why
	if in == l.in {
		return false
	}
	l.report(in)
	return true
}

// leave ends the life since the unit is not kept as it is. A life that something
// else runs is let go, once an end that is under way has had its grace period:
// half a restart could leave nothing running.
func (l *life) leave(now time.Time) {
	grace, underWay := l.unit.TerminationGracePeriod, l.dying()
	l.leaving = true
	in := l.in
	switch {
	case l.unit.external():
		if !underWay {
			grace = 0
		}
		l.notBefore = now.Add(grace)
		l.again.Reset(grace)
		in.Managed, in.Reason = false, ""
	default:
		l.send(grace)
		in.Leaving = true
	}
	if l.id == "" {
		return
	}
	l.report(in)
	l.log.Info("instance leaves", "instance", l.id, "grace", grace)
}

// send tells the driver the grace period. It forgets one that the driver has not
// taken yet.
func (l *life) send(grace time.Duration) {
	select {
	case <-l.end:
	default:
	}
	l.end <- grace // never blocks: nobody else sends
}

// over takes note of the end.
func (l *life) over(exit Exit) ending {
	select {
	case id := <-l.began:
		l.begin(id)
	default:
	}
	if !l.leaving && !l.kept() {
		l.leave(time.Now())
	}
	end := ending{exit: exit, began: l.id != "", asked: l.asks > 0, left: l.leaving}
	if end.began {
		end.lasted = time.Since(l.since)
	}
	if end.left {
		l.left(end)
	}
	return end
}

// left reports the end of a life that was asked to leave. What something else runs
// has not ended: it goes on when the engine does not.
func (l *life) left(end ending) {
	if l.id == "" || l.unit.external() && l.control.isClosing() {
		return
	}
	l.reportEnd(end, probe.Ended, time.Time{})
}
