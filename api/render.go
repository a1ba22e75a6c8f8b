package api

import (
	"crypto/tls"
	"fmt"
	"math"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// newTarget returns the JSON form of t without its probes. Details are truncated to text bytes.
func newTarget(t engine.TargetStatus, text int) Target {
	in := t.Instance
	return Target{
		Name: t.Target, Address: t.Address, Labels: t.Labels, Started: t.Started, Ready: t.Ready, Live: t.Live,
		State: t.State, InTrouble: t.State.InTrouble(), Severity: t.State.Severity(), Since: utc(t.Since), Cause: newCause(t.Cause, text),
		TroubledDependency: t.TroubledDependency, Damping: newDamping(t.Damping), Pause: newPause(t.Pause, text), Gateway: t.Gateway, Ejection: newEjection(t.Ejection, text),
		Instance: Instance{
			ID: in.ID, Phase: in.Phase, Since: utc(in.Since), Restarts: in.Restarts,
			Reason: in.Reason, Detail: probe.CleanText(in.Detail, text), ExitStatus: exitStatus(in.LastExit),
		},
		Summary: newSummary(t.Probes),
	}
}

func exitStatus(e probe.Exit) *int {
	if !e.Known {
		return nil
	}
	return &e.Status
}

func newCause(c engine.Cause, text int) *Cause {
	if c == (engine.Cause{}) {
		return nil
	}
	cause := &Cause{Reason: c.Reason, Detail: probe.CleanText(c.Detail, text)}
	if c.Probe != (probe.ID{}) {
		cause.Probe = c.Probe.String()
	}
	return cause
}

func newEjection(e *engine.Ejection, text int) *Ejection {
	if e == nil {
		return nil
	}
	return &Ejection{Probe: e.Probe.String(), Since: utc(e.Since), Until: utc(e.Until), Reason: e.Reason, Detail: probe.CleanText(e.Detail, text)}
}

func newDamping(d *engine.Damping) *Damping {
	if d == nil {
		return nil
	}
	return &Damping{Penalty: int(math.Round(d.Penalty)), Flapped: utc(d.Flapped), Since: utc(d.Since), Until: utc(d.Until)}
}

func newPause(p *engine.Pause, text int) *Pause {
	if p == nil {
		return nil
	}
	return &Pause{Reason: p.Reason, Detail: probe.CleanText(p.Detail, text), Since: utc(p.Since), Until: utc(p.Until)}
}

func newCounts(states engine.TargetStates) Counts {
	c := Counts{InTrouble: states.InTrouble(), States: map[probe.TargetState]int{}}
	for state, n := range states {
		if c.Targets += n; n > 0 {
			c.States[probe.TargetState(state)] = n
		}
	}
	return c
}

func newSummary(probes []engine.Status) Summary {
	var s Summary
	for _, p := range probes {
		switch p.Verdict {
		case probe.Passing:
			s.Passing++
		case probe.Failing:
			s.Failing++
		default:
			s.Undecided++
		}
		if p.OnHold {
			s.OnHold++
		}
	}
	return s
}

// newProbes returns the JSON form of statuses. Details are truncated to text bytes.
func newProbes(all []engine.Status, text int) []Probe {
	probes := make([]Probe, 0, len(all))
	for _, s := range all {
		probes = append(probes, newProbe(s, text))
	}
	return probes
}

func newProbe(s engine.Status, text int) Probe {
	p := newProbeID(s.ID)
	p.Handler = s.HandlerName
	p.Instance, p.Verdict, p.Since, p.Changes = s.Instance, s.Verdict, utc(s.Since), s.Changes
	p.Decided, p.Blind, p.Warned = s.Decided, s.Blind, s.Warned
	p.Last, p.Threshold = s.Last, s.Threshold()
	if p.Run = s.Run; s.Rule.Policy == probe.PolicyEvidence {
		p.Run, p.Score = 0, &s.Run
	}
	p.Progress = fmt.Sprintf("%d/%d", min(s.Run, p.Threshold), p.Threshold)
	p.Errors, p.OnHold, p.WaitReason, p.Attempting, p.Next = s.Errors, s.OnHold, s.WaitReason, s.Attempting, utc(s.Next)
	if !s.ResultAt.IsZero() {
		r := NewResult(s.Result)
		r.Detail, r.At = probe.CleanText(r.Detail, text), utc(s.ResultAt)
		p.Result = &r
	}
	p.Fault = newFault(&s.Fault, text)
	p.Attempts = Attempts{
		Success: s.Attempts[probe.Success], Warning: s.Attempts[probe.Warning],
		Failure: s.Attempts[probe.Failure], Unknown: s.Attempts[probe.Unknown],
	}
	p.Rule = Rule{
		InitialDelaySeconds: s.Rule.InitialDelay.Seconds(), PeriodSeconds: s.Rule.Period.Seconds(), TimeoutSeconds: s.Rule.Timeout.Seconds(),
		StartingPeriodSeconds: s.Rule.StartingPeriod.Seconds(), FailingPeriodSeconds: s.Rule.FailingPeriod.Seconds(),
		WarnAfterSeconds: s.Rule.WarnAfter.Seconds(), FailAfterSeconds: s.Rule.FailAfter.Seconds(), WarnOnRise: s.Rule.WarnOnRise, MaxRestarts: s.Rule.MaxRestarts,
		Policy: s.Rule.Policy, SuccessThreshold: s.Rule.SuccessThreshold, FailureThreshold: s.Rule.FailureThreshold, Effect: s.Rule.Effect,
	}
	return p
}

func newFault(f *engine.Fault, text int) *Fault {
	if !f.Exists() {
		return nil
	}
	return &Fault{f.Outcome, f.Reason, probe.CleanText(f.Detail, text), utc(f.At), f.Times, f.Of, probe.CleanText(f.Text(time.Now()), text)}
}

// newProbeID returns a Probe with only its identity set.
func newProbeID(id probe.ID) Probe {
	return Probe{ID: id.String(), Target: id.Target, Kind: id.Kind, Name: id.Name}
}

// NewResult converts r to its form in the API. It does not set At, because r does not have the time of the attempt.
func NewResult(r probe.Result) Result {
	var expiry time.Time
	if r.CertificateExpiry != 0 {
		expiry = time.Unix(r.CertificateExpiry, 0).UTC()
	}
	facts, peer, version := r.Facts(), "", ""
	if facts.Peer.IsValid() {
		peer = facts.Peer.String()
	}
	if facts.TLS != 0 {
		version = tls.VersionName(facts.TLS)
	}
	return Result{
		HTTPStatus: int(r.HTTPStatus), CertificateExpiry: expiry, Peer: peer, Protocol: facts.Protocol, TLSVersion: version, Redirects: int(facts.Redirects),
		Outcome: r.Outcome, Reason: r.Reason, Detail: r.Detail,
		DurationSeconds: r.Took.Seconds(), Tries: r.Tries,
		Timings: Timings{
			ResolveSeconds: r.Timings.Resolve.Seconds(), ConnectSeconds: r.Timings.Connect.Seconds(),
			TLSSeconds: r.Timings.TLS.Seconds(), FirstByteSeconds: r.Timings.FirstByte.Seconds(),
		},
	}
}

func newStats(s engine.Stats) Stats {
	stats := Stats{
		Probes: s.Probes, InFlight: s.InFlight, Queued: s.Queued, Overrun: s.Overrun, Late: s.Late,
		Shed: s.Shed, BusySeconds: s.Busy.Seconds(), Panics: s.Panics, Dropped: s.Dropped, Lateness: newHistogram(s.Lateness),
		Ejected: s.Ejected, Ejections: s.Ejections, Flaps: s.Flaps, Damped: s.Damped, Dampings: s.Dampings,
		Health:   Health{s.Health.Score, s.Health.Isolated, s.Health.NamesIsolated, s.Health.Degraded(), s.Health.Stalls, s.Health.Stalled.Seconds(), nil},
		Attempts: make([]AttemptStats, 0, len(s.Attempts)),
	}
	for _, a := range s.Attempts {
		stats.Attempts = append(stats.Attempts, AttemptStats{
			Kind: a.Kind, Handler: a.HandlerName, Outcome: a.Outcome, Durations: newHistogram(a.Durations),
		})
	}
	return stats
}

func newHistogram(h engine.Histogram) Histogram {
	bounds := make([]float64, 0, len(h.Bounds))
	for _, b := range h.Bounds {
		bounds = append(bounds, b.Seconds())
	}
	return Histogram{BoundsSeconds: bounds, Counts: append([]uint64{}, h.Counts...), SumSeconds: h.Sum.Seconds()}
}

// utc returns t in UTC, to the microsecond.
func utc(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
