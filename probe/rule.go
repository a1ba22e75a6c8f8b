package probe

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// Rule determines when a probe makes its attempts, and how many of them decide a verdict. Rules are comparable. The zero value of
// a field means its default, which is that of Kubernetes.
//
// The hcl tags name the arguments of probe and defaults blocks; package config reads them. With the option nonzero, an explicit 0
// in HCL is an error.
type Rule struct {
	Kind Kind // the kind in the probe's ID; Engine.Apply sets it

	InitialDelay           time.Duration `hcl:"initial_delay,optional" doc:"time from the start of the instance to the first attempt" min:"0s" max:"8784h"`
	Period                 time.Duration `hcl:"period,optional,nonzero" doc:"time from one attempt to the next" min:"10ms" max:"8784h"`
	StartingPeriod         time.Duration `hcl:"starting_period,optional,nonzero" doc:"time between attempts until a run of them has decided whether the instance passes or fails" default:"period" min:"10ms" max:"8784h"`
	FailingPeriod          time.Duration `hcl:"failing_period,optional,nonzero" doc:"time between attempts while the probe fails, and after a failure of one that passes, until it has been decided which it is. The first of them comes one to two of these periods after that failure" default:"period" min:"10ms" max:"8784h"`
	Timeout                time.Duration `hcl:"timeout,optional,nonzero" doc:"time that each try of an attempt may take; an attempt whose outcome is unknown is tried up to three times" min:"1ms" max:"8784h"`
	WarnAfter              time.Duration `hcl:"warn_after,optional" doc:"an attempt that passes, but takes longer, is a warning with the reason target.slow; less than timeout. Time that the engine itself has lost does not count" default:"no limit"`
	FailAfter              time.Duration `hcl:"fail_after,optional" doc:"an attempt that passes, but takes longer, is a failure with the reason target.too_slow; less than timeout. Up to 40ms more are a warning: so late can an engine be that counts as on time" default:"no limit"`
	WarnOnRise             string        `hcl:"warn_on_rise,optional" doc:"what must not rise beside its own recent past, without a limit that is given in advance: latency, the durations of attempts that pass, or the name of a number that the handler measures (measure of http, or a plugin). While it has risen, attempts that pass are warnings with the reason target.risen: see docs/policy.md. Not for startup probes" default:"none"`
	MaxRestarts            int32         `hcl:"max_restarts,optional,nonzero" doc:"how often in 5 minutes, from 1 to 100, the number uptime that the handler measures (measure of http, or a plugin) may fall, as it does where a process is started again between two attempts. After more, attempts that pass are warnings with the reason target.restarts. Not for startup probes" default:"any number"`
	SuccessThreshold       int32         `hcl:"success_threshold,optional,nonzero" doc:"consecutive successes until the probe passes; always 1 for startup and liveness probes" min:"1"`
	FailureThreshold       int32         `hcl:"failure_threshold,optional,nonzero" doc:"consecutive failures until the probe fails" min:"1"`
	TerminationGracePeriod time.Duration `hcl:"termination_grace_period,optional,nonzero" doc:"time that the instance may take to exit when the engine terminates it because this probe fails; not for readiness probes" default:"that of the target" max:"8784h"`
	Policy                 Policy        `hcl:"policy,optional" doc:"how outcomes add up to a verdict: runs of equal outcomes, which the thresholds decide, or evidence: a failure adds 5 to a score and a success takes 1 off it, from 0 to 20; the probe fails at 20 and passes again at 0. Not for startup probes"`
	OnError                OnError       `hcl:"on_error,optional" doc:"what an attempt that could not be made (outcome unknown) counts as: ignore it, or take it for a failure. An attempt that failed for a fault of the engine itself (reasons engine.…) or of a container runtime (runtime.…) is never a failure"`
	Effect                 Effect        `hcl:"effect,optional" doc:"what it means that the probe fails: fail makes the target not ready, or fails its instance, and warn only makes it degraded: it stays ready, in rotation, and is not restarted. Not for startup probes"`
	Compatibility          Compatibility // default: the engine's
}

// Defaults and bounds of a Rule. The defaults are those of the Kubernetes API
// server (SetDefaults_Probe in k8s.io/kubernetes/pkg/apis/core/v1).
const (
	DefaultPeriod           = 10 * time.Second
	DefaultTimeout          = time.Second
	DefaultSuccessThreshold = 1
	DefaultFailureThreshold = 3

	MinPeriod   = 10 * time.Millisecond // shorter periods would make the engine a load generator
	MaxDuration = 366 * 24 * time.Hour  // bounds every duration in a Rule
)

// WithDefaults returns r with its zero fields set to their defaults, if they have one. With the policy "evidence", which does not
// use thresholds, the thresholds have none.
func (r Rule) WithDefaults() Rule {
	r.Period = cmp.Or(r.Period, DefaultPeriod)
	r.Timeout = cmp.Or(r.Timeout, DefaultTimeout)
	if r.Policy == PolicyEvidence && r.Kind != Startup {
		return r
	}
	r.SuccessThreshold = cmp.Or(r.SuccessThreshold, DefaultSuccessThreshold)
	r.FailureThreshold = cmp.Or(r.FailureThreshold, DefaultFailureThreshold)
	return r
}

// Periods returns the shortest and the longest interval between two attempts.
func (r Rule) Periods() (shortest, longest time.Duration) {
	starting, failing := cmp.Or(r.StartingPeriod, r.Period), cmp.Or(r.FailingPeriod, r.Period)
	return min(r.Period, starting, failing), max(r.Period, starting, failing)
}

// Threshold returns how many consecutive equal outcomes decide a verdict; last is their outcome, Success or Failure. With the
// policy "evidence" it returns MaxScore.
func (r Rule) Threshold(last Outcome) int32 {
	if r.Policy == PolicyEvidence {
		return MaxScore
	}
	if last == Failure {
		return r.FailureThreshold
	}
	return r.SuccessThreshold
}

// DecidingRun returns how many consecutive equal outcomes decided a verdict, if last was the last one: the threshold, or 0 with
// the policy "evidence", which needs no fixed number.
func (r Rule) DecidingRun(last Outcome) int32 {
	if r.Policy == PolicyEvidence {
		return 0
	}
	return r.Threshold(last)
}

// FailuresToFail returns the maximum number of consecutive failures until a passing probe fails.
func (r Rule) FailuresToFail() int32 {
	if r.Policy == PolicyEvidence {
		return (MaxScore + FailureWeight - 1) / FailureWeight
	}
	return r.FailureThreshold
}

// TimeToFail returns the maximum time from a probe's first failure until the probe fails, limited to most. The defaults of the
// rule must be set.
func (r Rule) TimeToFail(most time.Duration) time.Duration {
	_, period := r.Periods()
	failures := time.Duration(r.FailuresToFail())
	if failures > most/period {
		return most
	}
	return min(failures*period+min(r.Timeout, most), most)
}

// DetectionTime returns the maximum time until a passing probe fails after its target has begun to fail every attempt, if the
// engine is on time. The defaults of the rule must be set.
func (r Rule) DetectionTime() time.Duration {
	between := max(cmp.Or(r.FailingPeriod, r.Period), r.Timeout)
	d := max(r.Period, r.Timeout) + time.Duration(r.FailuresToFail()-1)*between + r.Timeout
	if r.FailingPeriod != 0 && r.FailuresToFail() > 1 {
		d += between // the first attempt at the failing period comes one to two periods after the failure
	}
	return d
}

// Check validates a rule whose defaults are set. It returns FieldErrors with every invalid field under its HCL name, or nil.
func (r Rule) Check() error {
	var wrong FieldErrors
	duration := func(field string, d, least time.Duration) {
		if d < least || d > MaxDuration {
			wrong.Add(field, "is %s; it must be from %s to %s", FormatDuration(d), FormatDuration(least), FormatDuration(MaxDuration))
		}
	}
	duration("initial_delay", r.InitialDelay, 0)
	duration("period", r.Period, MinPeriod)
	duration("starting_period", cmp.Or(r.StartingPeriod, MinPeriod), MinPeriod)
	duration("failing_period", cmp.Or(r.FailingPeriod, MinPeriod), MinPeriod)
	duration("timeout", r.Timeout, time.Millisecond)
	r.checkLatency(&wrong)
	r.checkRise(&wrong)
	duration("termination_grace_period", r.TerminationGracePeriod, 0)
	r.checkPolicy(&wrong)
	if r.OnError > ErrorFails {
		wrong.Add("on_error", "must be ignore or fail")
	}
	r.checkEffect(&wrong)
	if r.Compatibility > Kubelet {
		wrong.Add("compatibility", "must be none or kubelet")
	}
	return wrong.Err()
}

// checkEffect validates the effect.
func (r Rule) checkEffect(wrong *FieldErrors) {
	switch {
	case r.Effect > EffectWarn:
		wrong.Add("effect", "must be fail or warn")
	case r.Effect == EffectWarn && r.Kind == Startup:
		wrong.Add("effect", "must be fail for a startup probe: the target has not started until it passes")
	case r.Effect == EffectWarn && r.TerminationGracePeriod != 0:
		wrong.Add("termination_grace_period", `has no effect with effect = "warn": the probe terminates no instance`)
	}
}

// RiseOfLatency is the value of Rule.WarnOnRise that watches the duration of attempts.
const RiseOfLatency = "latency"

// Uptime is the name of the measured number that falls when a process is restarted: see Rule.MaxRestarts.
const Uptime = "uptime"

// maxMaxRestarts bounds Rule.MaxRestarts, since the time of each restart is kept.
const maxMaxRestarts = 100

// MeasuredNumbers returns the names of the numbers that the rule requires the handler to measure.
func (r Rule) MeasuredNumbers() (names []string) {
	if r.WarnOnRise != "" && r.WarnOnRise != RiseOfLatency {
		names = append(names, r.WarnOnRise)
	}
	if r.MaxRestarts != 0 {
		names = append(names, Uptime)
	}
	return names
}

// checkRise validates WarnOnRise and MaxRestarts.
func (r Rule) checkRise(wrong *FieldErrors) {
	if r.MaxRestarts < 0 || r.MaxRestarts > maxMaxRestarts {
		wrong.Add("max_restarts", "is %d; it must be from 1 to %d", r.MaxRestarts, maxMaxRestarts)
	} else if r.MaxRestarts != 0 && r.Kind == Startup {
		wrong.Add("max_restarts", "has no effect on a startup probe, which has no history")
	}
	switch {
	case r.WarnOnRise != "" && r.Kind == Startup:
		wrong.Add("warn_on_rise", "has no effect on a startup probe, which has no history")
	case len(r.WarnOnRise) > maxMeasured:
		wrong.Add("warn_on_rise", "is %d bytes long; it must be latency or a name of at most %d bytes", len(r.WarnOnRise), maxMeasured)
	}
}

// maxMeasured bounds the name of a measured number, in bytes.
const maxMeasured = 64

// checkPolicy validates the policy and the thresholds.
func (r Rule) checkPolicy(wrong *FieldErrors) {
	switch {
	case r.Policy > PolicyEvidence:
		wrong.Add("policy", "must be runs or evidence")
	case r.Policy == PolicyEvidence && r.Kind == Startup:
		wrong.Add("policy", "must be runs for a startup probe: one success means that the instance has started")
	case r.Policy == PolicyEvidence:
		const noEffect = `has no effect with policy = "evidence"`
		if r.SuccessThreshold != 0 {
			wrong.Add("success_threshold", noEffect)
		}
		if r.FailureThreshold != 0 {
			wrong.Add("failure_threshold", noEffect)
		}
		return
	}
	switch {
	case r.SuccessThreshold < 1:
		wrong.Add("success_threshold", "must be 1 or more")
	case r.SuccessThreshold > 1 && r.Kind != Readiness:
		wrong.Add("success_threshold", "must be 1 for a %v probe", r.Kind)
	}
	if r.FailureThreshold < 1 {
		wrong.Add("failure_threshold", "must be 1 or more")
	}
}

// FormatDuration formats a duration as in a configuration: 366d, 1h30m, 250ms.
func FormatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d != 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// checkLatency validates the limits on an attempt's duration.
func (r Rule) checkLatency(wrong *FieldErrors) {
	limit := func(field string, d time.Duration) {
		if d != 0 && (d < time.Millisecond || d >= r.Timeout) {
			wrong.Add(field, "is %s; it must be from %v to less than timeout, which is %s", FormatDuration(d), time.Millisecond, FormatDuration(r.Timeout))
		}
	}
	limit("warn_after", r.WarnAfter)
	limit("fail_after", r.FailAfter)
	if r.WarnAfter != 0 && r.FailAfter != 0 && r.WarnAfter >= r.FailAfter {
		wrong.Add("warn_after", "is %v; it must be less than fail_after, which is %v", r.WarnAfter, r.FailAfter)
	}
}

// OnError determines how an attempt that could not be made (outcome unknown) counts towards the thresholds.
type OnError uint8

// The ways to count an unknown outcome.
const (
	ErrorIgnored OnError = iota // not at all; status and metrics still show it
	ErrorFails                  // as a failure
)

var onErrorNames = names[OnError]{"ignore", "fail"}

// String returns "ignore" or "fail".
func (o OnError) String() string { return onErrorNames.text(o) }

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (o OnError) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *OnError) UnmarshalText(b []byte) error { return onErrorNames.parse(o, "on_error", b) }

// Compatibility selects either the documented semantics of Kubernetes' probes or the kubelet's actual behavior, including its
// known bugs.
type Compatibility uint8

// The compatibilities.
const (
	Mended  Compatibility = iota // the documented semantics
	Kubelet                      // runs outlive their instance, an instance that is not running fails, a truncated body is an error
)

var compatibilityNames = names[Compatibility]{"none", "kubelet"}

// String returns "none" or "kubelet".
func (c Compatibility) String() string { return compatibilityNames.text(c) }

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (c Compatibility) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Compatibility) UnmarshalText(b []byte) error {
	return compatibilityNames.parse(c, "compatibility", b)
}
