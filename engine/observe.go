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
	// ejectAfter is the number of consecutive failures observed by gateways that ejects a target. Envoy's
	// consecutive_gateway_failure has the same default.
	ejectAfter = 5

	// maxEjection bounds the duration of an ejection.
	maxEjection = 5 * time.Minute

	// maxObservedReason bounds the reason of an observation, in bytes.
	maxObservedReason = 100
)

// Ejection means that gateways send no requests to a target, since their previous requests have failed.
type Ejection struct {
	Probe  probe.ID     // probe named in the observations
	Since  time.Time    // when the ejection began
	Until  time.Time    // when the ejection ends at the latest
	Reason probe.Reason // reason of the last failure, or gateway.failures if it had none
	Detail string
}

// ejections are the ejections of all targets.
type ejections struct {
	ends  timeline.Timeline // their latest end times, by schedule key
	count uint64            // number of ejections so far
}

// observed has the observations of gateways about a target.
type observed struct {
	failures uint8     // consecutive
	askedAt  int64     // when a failure last requested an attempt
	ejection *Ejection // nil if the target is not ejected; immutable
	since    int64     // start of the ejection
}

// Observe reports the outcome of a request that a gateway forwarded to a target. id names a probe of that target. Observe returns
// whether the probe exists. It may be called for each request: a success that follows a success takes no lock that attempts need.
//
// While the probe passes, a failure makes an attempt due, as Trigger does. Five consecutive failures eject the target:
// TargetStatus.Gateway is then probe.GatewayDown, and Ejection has the reason. Observations never count towards the thresholds of
// the probe: its verdict, and thus TargetStatus.Ready, depends only on attempts.
//
// The ejection ends when an attempt that began after it succeeds, when the verdict or the instance changes, or after the time in
// which a failing target must have made the probe fail: the failure threshold times the period, plus the timeout, but at most
// five minutes.
//
// The engine does not know which targets serve the same requests, so it does not limit the number of ejected targets. Groups do:
// see group.Rule.MaxEjected.
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

// observeSuccess ends a run of observed failures.
func (s *slot) observeSuccess() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rare != nil && s.rare.observed != nil {
		s.rare.observed.failures = 0
	}
}

// observeFailure counts an observed failure of a passing probe, and reports whether the scheduler must handle it. In a storm of
// failures, it returns true only for those that eject the target, and otherwise once every probe.MinPeriod.
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

// observeFailure ejects the target of a probe after enough failures, and requests an attempt. It locks mu.
func (sc *scheduler) observeFailure(s *slot, o *probe.Observation, now int64) {
	sc.mu.Lock()
	defer sc.unlock()
	if sc.slots[s.key] != s {
		return // the probe has been removed
	}
	sc.summaries.eject(s, o, now)
	sc.trigger(s, false)
	sc.wakeIfEarlier()
}

// eject ejects the target of a probe if enough failures were observed, and publishes that.
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

// eject ejects the target of a probe if enough failures were observed, and returns when the ejection ends at the latest. It
// returns 0 if there is nothing to do.
func (s *slot) eject(o *probe.Observation, c *clock.Clock, now int64) (until int64) {
	r := &s.spec.Load().rule
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Verdict != probe.Passing || s.rare == nil || s.rare.observed == nil {
		return 0
	}
	if of := s.rare.observed; of.failures == ejectAfter && of.ejection == nil {
		until = now + int64(r.TimeToFail(maxEjection)) // by then attempts have determined whether the target fails
		of.failures, of.since = 0, now
		of.ejection = &Ejection{s.id(), c.Time(now), c.Time(until), o.Reason, o.Detail}
	}
	return until
}

// readmit ends the ejection of a probe's target if it began no later than began, and publishes that.
func (m *summaries) readmit(s *slot, began, now int64) {
	if !s.endEjection(began) {
		return
	}
	m.ejections.ends.Remove(s.key)
	m.updateState(s.target)
	m.log.limited(newEjectionLine(s, nil), now)
	m.recordTransition(s.target, Transition{Kind: s.kind, Name: s.name, Readmitted: true}, now)
}

// endEjection ends an ejection that began no later than began, and reports whether there was one.
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

// endEjections ends up to loopChunk expired ejections.
func (m *summaries) endEjections(slots []*slot, now int64) {
	for range loopChunk {
		key, until, ok := m.ejections.ends.First()
		if !ok || until > now {
			return
		}
		m.readmit(slots[key], now, now)
	}
}

// newEjectionLine returns the log line about an ejection after the observation o, or about its end if o is nil.
func newEjectionLine(s *slot, o *probe.Observation) logLine {
	attrs := probeAttrs(s.id(), s.target.current().id)
	if o == nil {
		return func(to *slog.Logger) {
			to.LogAttrs(context.Background(), slog.LevelInfo, "target no longer ejected", attrs...)
		}
	}
	attrs = append(attrs, resultAttrs(&probe.Result{Reason: o.Reason, Detail: o.Detail}, true)[1:]...)
	return func(to *slog.Logger) {
		to.LogAttrs(context.Background(), slog.LevelWarn, "target ejected: requests from gateways failed", attrs...)
	}
}
