package restart

import (
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// inquiry asks the targets that one depends on whether they fail too, before that one is restarted:
// what it fails for may not have been found there yet. Those that other engines probe cannot be asked: it waits until
// one of these would have found out. The zero inquiry has not begun.
type inquiry struct {
	began      time.Time
	until      time.Time // when it ends at the latest
	asksOthers bool      // other engines probed some when it began
}

// Times of an inquiry.
const (
	inquiryInterval = 100 * time.Millisecond // between two looks at the answers
	maxInquiry      = time.Minute            // until a dependency that fails is found failing, or recovers
)

// begin triggers the probes of the dependencies. It ends at once if there are none.
func (q *inquiry) begin(e *engine.Engine, dependencies []string, now time.Time) {
	q.began, q.until = now, now
	for p := range probesOf(e, dependencies) {
		if p.isUnreported() {
			continue
		}
		if q.asksOthers = q.asksOthers || p.isOther; !p.isOther {
			e.Trigger(p.ID)
		}
		if until := now.Add(p.timeToFind()); until.After(q.until) {
			q.until = until
		}
	}
}

// isOpen reports whether a dependency has not answered yet, or may soon be found failing: it has failed to, or another
// engine may have found that out. The latter is mayFail.
func (q *inquiry) isOpen(e *engine.Engine, dependencies []string, now time.Time) (open, mayFail bool) {
	if !now.Before(q.until) {
		return false, false
	}
	for p := range probesOf(e, dependencies) {
		if p.isOther {
			mayFail = mayFail || now.Before(q.began.Add(p.timeToFind()))
			open = open || mayFail
			continue
		}
		if p.isUnreported() {
			mayFail = mayFail || q.asksOthers // this engine may have just taken it over
			open = open || mayFail
			continue
		}
		answered := p.ResultAt.After(q.began)
		mayFail = mayFail || answered && p.Result.Outcome == probe.Failure
		open = open || !answered || mayFail
	}
	return open, mayFail
}

// dependencyProbe is a probe of a target that another one depends on.
type dependencyProbe struct {
	engine.Status
	isOther bool          // another engine attempts it
	delay   time.Duration // see engine.Dependency
}

// timeToFind returns how long it takes at most until it is known here that the probe fails, from a first attempt that
// fails on; bounded by maxInquiry.
func (p dependencyProbe) timeToFind() time.Duration {
	return min(p.Rule.TimeToFail(maxInquiry)+p.delay, maxInquiry)
}

// isUnreported reports whether this engine has the probe, and knows no instance to attempt it on: for a moment after it has
// taken the target over from another engine, or since there is none.
func (p dependencyProbe) isUnreported() bool {
	return !p.isOther && p.WaitReason == verdict.NoInstance
}

// probesOf yields the probes of some targets that are attempted now, as far as this is known, and those that are unreported.
func probesOf(e *engine.Engine, targets []string) func(yield func(dependencyProbe) bool) {
	return func(yield func(dependencyProbe) bool) {
		for _, name := range targets {
			on, _ := e.Admin().Dependency(name)
			for _, p := range on.Probes {
				found := dependencyProbe{p, on.IsOther, on.Delay}
				if (on.IsOther || p.WaitReason == verdict.NotWaiting || found.isUnreported()) && !yield(found) {
					return
				}
			}
		}
	}
}

// inquire says that a target that this one depends on may fail too, which is not known yet: see inquiry.
func (i *instance) inquire(now time.Time, _ probe.ID) delay {
	e := i.supervisor.control.config.Engine
	dependencies := e.Admin().Dependencies(i.supervisor.target)
	if i.inquiry == (inquiry{}) {
		i.inquiry.begin(e, dependencies, now)
	}
	switch open, mayFail := i.inquiry.isOpen(e, dependencies, now); {
	case mayFail:
		return delay{reason: probe.ReasonDependency, until: now.Add(min(healthInterval, i.inquiry.until.Sub(now)))}
	case open:
		return delay{until: now.Add(inquiryInterval)}
	}
	return delay{}
}
