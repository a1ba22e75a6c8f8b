package simulate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sonde-probe/sonde/probe"
)

// quality describes how good a rule is under noise. Times are in seconds. Unless noted, the target is well except for the
// noise.
type quality struct {
	Setting          string       `json:"setting"` // nameOf of the rule
	Policy           probe.Policy `json:"policy"`
	SuccessThreshold int32        `json:"successThreshold,omitempty"`
	FailureThreshold int32        `json:"failureThreshold,omitempty"`
	Configured       bool         `json:"configured"` // it is the rule in the configuration

	DetectAttempts int32   `json:"detectAttempts"` // until an outage is found, in which all attempts fail
	DetectSeconds  float64 `json:"detectSeconds"`  // likewise, at the latest: all attempts time out
	RecoverSeconds float64 `json:"recoverSeconds"` // until a target that is well again and free of noise passes, at the latest

	Partial []partial `json:"partial"`

	MistakeEvery    float64 `json:"mistakeEvery"`    // mean attempts from one mistake to the next: the probe fails although the target is well
	MistakeSeconds  float64 `json:"mistakeSeconds"`  // MistakeEvery as a time
	DurationSeconds float64 `json:"mistakeDuration"` // mean duration of a mistake
	Availability    float64 `json:"availability"`    // share of time in which a target that is well passes

	Rise *rise `json:"rise,omitempty"` // of warn_on_rise; set only for the configured rule
}

// partial describes how a rule finds a target of which a share of the attempts fails, each independently.
type partial struct {
	Failures       float64 `json:"failures"`       // share of failing attempts
	DetectAttempts float64 `json:"detectAttempts"` // mean attempts until the probe fails
	PassesAfter    float64 `json:"passesAfter"`    // mean attempts until the probe passes again although the target is not well
}

// nameOf returns a name for a rule's policy and thresholds: "evidence", "runs 3/1".
func nameOf(r probe.Rule) string {
	if r.Policy == probe.PolicyEvidence {
		return r.Policy.String()
	}
	return fmt.Sprintf("runs %d/%d", r.FailureThreshold, r.SuccessThreshold)
}

// compare returns the quality of rule r, followed by that of alternatives with the same kind, period and timeout: failure
// thresholds 1, 2, 3 and 5, and the policy "evidence". shares are the shares of failing attempts of partly failing targets.
//
// It returns an error for a startup probe, which makes no further attempts after it has passed, and for a threshold above
// maxThreshold.
func compare(r probe.Rule, n noise, shares []float64) (all []quality, err error) {
	switch {
	case r.Kind == probe.Startup:
		return nil, errors.New("a startup probe ends when it has passed: noise has no effect after that; play its outcomes instead")
	case max(r.SuccessThreshold, r.FailureThreshold) > maxThreshold:
		return nil, fmt.Errorf("a threshold is above %d: that takes too long to solve", maxThreshold)
	}
	for _, rule := range settings(r) {
		all = append(all, qualityOf(rule, n, shares))
	}
	all[0].Configured, all[0].Rise = true, riseOf(r)
	return all, nil
}

// settings returns a rule followed by its alternatives.
func settings(r probe.Rule) []probe.Rule {
	all := []probe.Rule{r}
	for _, failures := range []int32{1, 2, 3, 5} {
		all = append(all, runsRule(r, failures))
	}
	if r.Kind != probe.Startup {
		all = append(all, evidenceRule(r))
	}
	same := func(other probe.Rule) bool { return other == r }
	return append(all[:1], slices.DeleteFunc(all[1:], same)...)
}

func qualityOf(r probe.Rule, n noise, shares []float64) quality {
	period := r.Period.Seconds()
	good, mistake := cycle(r, n)
	q := quality{
		Setting: nameOf(r), Policy: r.Policy, SuccessThreshold: r.SuccessThreshold, FailureThreshold: r.FailureThreshold,
		DetectAttempts: r.FailuresToFail(),
		DetectSeconds:  detectSeconds(r),
		RecoverSeconds: float64(r.Threshold(probe.Success)) * period,
		MistakeEvery:   good + mistake, MistakeSeconds: (good + mistake) * period,
		DurationSeconds: mistake * period, Availability: good / (good + mistake),
	}
	for _, share := range shares {
		of := noise{Failures: share}
		found, passes := cycle(r, of)
		q.Partial = append(q.Partial, partial{share, found, passes})
	}
	return q
}
