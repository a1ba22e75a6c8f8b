package probe

import (
	"cmp"
	"fmt"
	"time"
)

// Rule is when to attempt and how many attempts decide. Rules are comparable.
// The zero value of a field stands for its default, which is the kubelet's.
type Rule struct {
	Kind Kind // as in the probe's ID; Apply fills it in

	InitialDelay     time.Duration // from the instance's start to the first attempt; default 0
	Period           time.Duration // from one attempt to the next; default 10s, at least MinPeriod
	Timeout          time.Duration // for each try of an attempt; default 1s
	SuccessThreshold int32         // successes in a row that pass; default 1, and 1 for startup and liveness
	FailureThreshold int32         // failures in a row that fail; default 3

	// TerminationGracePeriod is how long an instance may take to end when this
	// probe's failing ends it. Default: the target's own.
	TerminationGracePeriod time.Duration

	OnError       OnError
	Compatibility Compatibility // default: the engine's
}

// Defaults and bounds of a Rule. The defaults are those of the Kubernetes API
// server (SetDefaults_Probe in k8s.io/kubernetes/pkg/apis/core/v1).
const (
	DefaultPeriod           = 10 * time.Second
	DefaultTimeout          = time.Second
	DefaultSuccessThreshold = 1
	DefaultFailureThreshold = 3

	MinPeriod   = 10 * time.Millisecond // below it an engine is a load generator
	MaxDuration = 366 * 24 * time.Hour  // of any duration in a Rule
)

// WithDefaults returns r with every zero field that has a default set to it.
func (r Rule) WithDefaults() Rule {
	r.Period = cmp.Or(r.Period, DefaultPeriod)
	r.Timeout = cmp.Or(r.Timeout, DefaultTimeout)
	r.SuccessThreshold = cmp.Or(r.SuccessThreshold, DefaultSuccessThreshold)
	r.FailureThreshold = cmp.Or(r.FailureThreshold, DefaultFailureThreshold)
	return r
}

// Check says what is wrong with a rule that has its defaults, or nil. The error
// is a *FieldError whose Field is the HCL name.
func (r Rule) Check() error {
	durations := []struct {
		field string
		value time.Duration
		least time.Duration
	}{
		{"initial_delay", r.InitialDelay, 0},
		{"period", r.Period, MinPeriod},
		{"timeout", r.Timeout, time.Millisecond},
		{"termination_grace_period", r.TerminationGracePeriod, 0},
	}
	for _, d := range durations {
		if d.value < d.least || d.value > MaxDuration {
			return &FieldError{Field: d.field, Problem: fmt.Sprintf("is %v, it must be from %v to %v", d.value, d.least, MaxDuration)}
		}
	}
	switch {
	case r.SuccessThreshold < 1:
		return &FieldError{Field: "success_threshold", Problem: "must be 1 or more"}
	case r.FailureThreshold < 1:
		return &FieldError{Field: "failure_threshold", Problem: "must be 1 or more"}
	case r.SuccessThreshold > 1 && r.Kind != Readiness:
		return &FieldError{Field: "success_threshold", Problem: fmt.Sprintf("must be 1 for a %v probe", r.Kind)}
	case r.OnError > ErrorFails:
		return &FieldError{Field: "on_error", Problem: "must be ignore or fail"}
	case r.Compatibility > Kubelet:
		return &FieldError{Field: "compatibility", Problem: "must be none or kubelet"}
	}
	return nil
}

// OnError says what an attempt that could not be made (outcome unknown) does to
// the thresholds.
type OnError uint8

// What an unknown outcome counts as.
const (
	ErrorIgnored OnError = iota // nothing; it is shown and counted on its own
	ErrorFails                  // a failure
)

var onErrorNames = names[OnError]{"ignore", "fail"}

// String returns "ignore" or "fail".
func (o OnError) String() string { return onErrorNames.text(o) }

// MarshalText returns String.
func (o OnError) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (o *OnError) UnmarshalText(b []byte) (err error) {
	*o, err = onErrorNames.parse("on_error", b)
	return err
}

// Compatibility chooses between the kubelet's documented semantics with its
// known accidents mended, and the accidents too.
type Compatibility uint8

// The compatibilities.
const (
	Mended  Compatibility = iota // the documented semantics
	Kubelet                      // runs outlive the instance, what does not run fails, a broken body is an error
)

var compatibilityNames = names[Compatibility]{"none", "kubelet"}

// String returns "none" or "kubelet".
func (c Compatibility) String() string { return compatibilityNames.text(c) }

// MarshalText returns String.
func (c Compatibility) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (c *Compatibility) UnmarshalText(b []byte) (err error) {
	*c, err = compatibilityNames.parse("compatibility", b)
	return err
}
