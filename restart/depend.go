package restart

import (
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// inquiry checks, before a target is restarted, whether its dependencies fail too: the cause of its failure may not
// have been detected there yet. It triggers the probes of the dependencies. Probes of other engines cannot be
// triggered: the inquiry waits until those engines would have detected a failure. The zero inquiry has not begun.
type inquiry struct {
	began      time.Time
	until      time.Time // the latest time at which it ends
	asksOthers bool      // other engines probed some dependencies when it began
}

// Times of an inquiry.
const (
	inquiryInterval = 100 * time.Millisecond // between two checks of the results
	maxInquiry      = time.Minute            // until a failing dependency is detected, or recovers
)

// begin triggers the probes of the dependencies. Without dependencies, the inquiry ends at once.
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

// isOpen reports whether the inquiry must continue. mayFail is true if a dependency may soon be found failing: its
// triggered attempt failed, or another engine may detect its failure. open is also true while a triggered attempt has
// no result.
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

// dependencyProbe is a probe of a dependency.
type dependencyProbe struct {
	engine.Status
	isOther bool          // another engine attempts it
	delay   time.Duration // see engine.Dependency
}

// timeToFind returns the maximum time from the first failed attempt until this engine knows that the probe fails, if
// all further attempts fail. It is at most maxInquiry.
func (p dependencyProbe) timeToFind() time.Duration {
	return min(p.Rule.TimeToFail(maxInquiry)+p.delay, maxInquiry)
}

// isUnreported reports whether this engine has the probe but knows no instance for it: briefly after it has taken the
// target over from another engine, or because there is no instance.
func (p dependencyProbe) isUnreported() bool {
	return !p.isOther && p.WaitReason == verdict.NoInstance
}

// probesOf yields the probes of the given targets that, as far as known, are being attempted, and the unreported ones.
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

// inquire delays the restart while it is unknown whether a dependency fails too: see inquiry.
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
