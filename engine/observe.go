package engine

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/timeline"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

const (
	// ejectAfter is how many failures in a row gateways have to observe for the target to be
	// ejected. Envoy has the same number, consecutive_gateway_failure.
	ejectAfter = 5

	// maxEjection bounds the time for which a target is ejected.
	maxEjection = 5 * time.Minute

	// maxObservedReason bounds the reason of an observation, in bytes.
	maxObservedReason = 100
)

// Ejection says that gateways are to send a target no requests, since those that they have
// sent have failed.
type Ejection struct {
	Probe  probe.ID     // that was named in the observations
	Since  time.Time    // when it began
	Until  time.Time    // when it ends at the latest
	Reason probe.Reason // of the last failure, or gateway.failures if that had none
	Detail string
}

// ejections are those of all targets.
type ejections struct {
	ends  timeline.Timeline // when they end at the latest, by key of the schedule
	count uint64            // of all that have begun
}

// observed is what gateways have seen of a target.
type observed struct {
	failures uint8     // in a row
	askedAt  int64     // when an attempt was asked for because of a failure
	ejection *Ejection // nil if the target is not ejected; what it points to never changes
	since    int64     // of the ejection
}

// Observe tells the engine what a gateway has seen of a target itself, with a request that it
// has forwarded. A probe of that target is named by id. Observe reports whether there is such
// a probe. It may be called for each request: a success that follows a success takes no lock
// that attempts need.
//
// While the probe passes, a failure makes an attempt due, as Trigger does. Five failures
// in a row without a success eject the target: TargetStatus.Gateway is probe.GatewayDown, and
// Ejection says why. An observation never counts towards a threshold of the probe, whose
// verdict, and so TargetStatus.Ready, stays what attempts have found.
//
// The ejection ends when an attempt succeeds that began after it, when the verdict or the
// instance changes, or when so much time has passed that the probe must have failed if the
// target does: its failure threshold times its period, plus its timeout, but not more than
// five minutes.
//
// The engine does not know which targets do the same work, so that it ejects as many as
// gateways say. How many may be out of rotation is for who does: see group.Rule.MaxEjected.
func (e *Engine) Observe(id probe.ID, o probe.Observation) bool {
	s := e.registry.probe(id)
	if s == nil {
		return false
	}
	switch o.Outcome {
	case probe.Success, probe.Warning:
		s.observeSuccess()
	case probe.Failure:
		if now := e.scheduler.clock.Now(); s.observeFailure(now) {
			o.Reason = cmp.Or(probe.Reason(probe.CleanText(string(o.Reason), maxObservedReason)), reasonEjected)
			o.Detail = probe.CleanText(e.conf.Redact(o.Detail), maxInstanceText)
			e.scheduler.observeFailure(s, &o, now)
		}
	}
	return true
}

// observeSuccess ends a row of observed failures.
func (s *slot) observeSuccess() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rare != nil && s.rare.observed != nil {
		s.rare.observed.failures = 0
	}
}

// observeFailure counts an observed failure of a probe that passes, and reports whether
// something has to be done about it. Of a storm of failures only those are that eject the
// target, and one every probe.MinPeriod.
func (s *slot) observeFailure(now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Verdict != probe.Passing || s.waitReason != verdict.NotWaiting || s.removed {
		return false
	}
	r := s.makeRare()
	if r.observed == nil {
		r.observed = &observed{}
	}
	o := r.observed
	if o.ejection == nil {
		o.failures = min(o.failures+1, ejectAfter)
	}
	if o.failures < ejectAfter && now < o.askedAt+int64(probe.MinPeriod) {
		return false
	}
	o.askedAt = now
	return true
}

// observeFailure ejects the target of a probe if it has failed often enough, and asks for an
// attempt. It locks mu.
func (sc *scheduler) observeFailure(s *slot, o *probe.Observation, now int64) {
	sc.mu.Lock()
	defer sc.unlock()
	if sc.slots[s.key] != s {
		return // it was removed meanwhile
	}
	sc.summaries.eject(s, o, now)
	sc.trigger(s, false)
	sc.wakeIfEarlier()
}

// eject ejects the target of a probe for which enough failures were observed.
func (m *summaries) eject(s *slot, o *probe.Observation, now int64) {
	until := s.eject(o, m.clock, now)
	if until == 0 {
		return
	}
	m.ejections.ends.Set(s.key, until)
	m.ejections.count++
	m.updateState(s.target)
	m.log.limited(newEjectionLine(s, o), now)
	m.recordTransition(s.target, Transition{Kind: s.kind, Name: s.name, Ejected: true, Reason: o.Reason, Detail: o.Detail}, now)
}

// eject ejects the target of a probe for which enough failures were observed, and returns until
// when; 0 if there is nothing to do.
func (s *slot) eject(o *probe.Observation, c *clock.Clock, now int64) (until int64) {
	r := &s.spec.Load().rule
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Verdict != probe.Passing || s.rare == nil || s.rare.observed == nil {
		return 0
	}
	if of := s.rare.observed; of.failures == ejectAfter && of.ejection == nil {
		until = now + int64(r.TimeToFail(maxEjection)) // by then attempts have found out whether the target fails
		of.failures, of.since = 0, now
		of.ejection = &Ejection{s.id(), c.Time(now), c.Time(until), o.Reason, o.Detail}
	}
	return until
}

// readmit ends the ejection of a probe's target if it began at a time or before.
func (m *summaries) readmit(s *slot, began, now int64) {
	if !s.endEjection(began) {
		return
	}
	m.ejections.ends.Remove(s.key)
	m.updateState(s.target)
	m.log.limited(newEjectionLine(s, nil), now)
	m.recordTransition(s.target, Transition{Kind: s.kind, Name: s.name, Readmitted: true}, now)
}

// endEjection ends an ejection that began at a time or before, and reports whether there was
// one.
func (s *slot) endEjection(began int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rare == nil || s.rare.observed == nil {
		return false
	}
	o := s.rare.observed
	if o.ejection == nil || o.since > began {
		return false
	}
	o.ejection, o.failures = nil, 0
	return true
}

// endEjections ends some of the ejections whose time is over.
func (m *summaries) endEjections(slots []*slot, now int64) {
	for range loopChunk {
		key, until, ok := m.ejections.ends.First()
		if !ok || until > now {
			return
		}
		m.readmit(slots[key], now, now)
	}
}

// newEjectionLine returns the line that a target was ejected after an observation, or that it is no longer; nil is that.
func newEjectionLine(s *slot, o *probe.Observation) logLine {
	attrs := probeAttrs(s.id(), s.target.current().id)
	if o == nil {
		return func(to *slog.Logger) {
			to.LogAttrs(context.Background(), slog.LevelInfo, "target is no longer ejected", attrs...)
		}
	}
	attrs = append(attrs, resultAttrs(&probe.Result{Reason: o.Reason, Detail: o.Detail}, true)[1:]...)
	return func(to *slog.Logger) {
		to.LogAttrs(context.Background(), slog.LevelWarn, "target ejected: requests of gateways have failed", attrs...)
	}
}
