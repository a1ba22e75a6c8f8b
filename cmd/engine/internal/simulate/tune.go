package simulate

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// goal holds the bounds for the thresholds of a probe.
type goal struct {
	FalseAlarms float64       // maximum per second; in a false alarm, the probe fails although the target is well
	Detect      time.Duration // maximum time until an outage is found
}

// tuned is the result of tuning a probe by its recorded outcomes. Times are in seconds.
type tuned struct {
	Noise    estimate    `json:"noise"`
	Settings []candidate `json:"settings"`

	// Proposals are the settings that keep the goal even at the upper end of the noise's interval, at most one for each policy.
	Proposals []string `json:"proposals"`

	// AttemptsNeeded is about how many attempts must be recorded until there is a proposal, if the noise stays the same. It is
	// 0 if there is a proposal, or if the noise is too high for any.
	AttemptsNeeded int `json:"attemptsNeeded,omitempty"`
}

// candidate is a setting with its measures.
type candidate struct {
	Setting       string  `json:"setting"` // nameOf of the rule
	Configured    bool    `json:"configured"`
	DetectSeconds float64 `json:"detectSeconds"` // until an outage is found at the latest

	// Mean times for which the probe passes until a false alarm: by the estimates of the noise, 0 if no failure was recorded,
	// and by the upper ends of the noise's intervals.
	FalseAlarmSeconds float64 `json:"falseAlarmSeconds,omitempty"`
	AtLeastSeconds    float64 `json:"atLeastSeconds"`

	Alarms int  `json:"alarms"` // number of alarms in the recorded outcomes, including outages
	Keeps  bool `json:"keeps"`  // the goal is kept even at the upper end of the interval

	likely bool // the goal is kept according to the estimates
}

// maxTuned limits the failure thresholds that are tried.
const maxTuned = 50

// tune finds the failure thresholds that keep a goal for a probe with rule r and recorded outcomes, and whether the policy
// "evidence" keeps it. A run of failures that lasts goal.Detect or longer is an outage; shorter runs are noise. It returns an
// error for a startup probe, and if no threshold can find an outage in time.
func tune(r probe.Rule, outcomes []probe.OutcomeRun, g goal) (tuned, error) {
	switch {
	case r.Kind == probe.Startup:
		return tuned{}, errors.New("a startup probe ends when it has passed: it has no false alarms after that")
	case max(r.SuccessThreshold, r.FailureThreshold) > maxThreshold:
		return tuned{}, fmt.Errorf("a threshold is above %d: that takes too long to solve", maxThreshold)
	case r.Period+r.Timeout > g.Detect:
		return tuned{}, fmt.Errorf("with a period of %v and a timeout of %v no outage is found within %v: make both of them shorter, such as a period of %v", r.Period, r.Timeout, g.Detect, (g.Detect / 4).Round(time.Millisecond))
	}
	outage := uint64((g.Detect + r.Period - 1) / r.Period)
	c := countPairs(outcomes, outage)
	t := tuned{Noise: c.estimate(), Settings: []candidate{}, Proposals: []string{}}
	likely := false
	for _, rule := range candidates(r, g, t.Noise) {
		one := newCandidate(rule, t.Noise, g)
		one.Configured, one.Alarms = rule == r, alarms(rule, outcomes)
		t.Settings = append(t.Settings, one)
		likely = likely || one.likely
	}
	for _, rule := range proposals(r, g, t.Noise) {
		t.Proposals = append(t.Proposals, nameOf(rule))
	}
	if len(t.Proposals) == 0 && likely {
		t.AttemptsNeeded = needed(r, g, c)
	}
	return t, nil
}

// candidates returns the settings to show: that of the probe, the failure thresholds up to the first that keeps the goal, and
// evidence.
func candidates(r probe.Rule, g goal, e estimate) []probe.Rule {
	all := []probe.Rule{r}
	for _, rule := range append(tried(r, g, e), evidenceRule(r)) {
		if rule != r {
			all = append(all, rule)
		}
	}
	return all
}

// tried returns rules with failure thresholds, from 1 up, that find an outage in time. The list ends with the first rule that
// keeps the goal.
func tried(r probe.Rule, g goal, e estimate) (all []probe.Rule) {
	for k := int32(1); k <= maxTuned; k++ {
		rule := runsRule(r, k)
		if detectSeconds(rule) > g.Detect.Seconds() {
			break
		}
		all = append(all, rule)
		if newCandidate(rule, e, g).Keeps {
			break
		}
	}
	return all
}

// proposals returns for each policy the setting that keeps the goal, if there is one: the lowest such failure threshold, and
// evidence.
func proposals(r probe.Rule, g goal, e estimate) (all []probe.Rule) {
	if runs := tried(r, g, e); len(runs) > 0 && newCandidate(runs[len(runs)-1], e, g).Keeps {
		all = append(all, runs[len(runs)-1])
	}
	if rule := evidenceRule(r); newCandidate(rule, e, g).Keeps {
		all = append(all, rule)
	}
	return all
}

// needed returns about how many attempts must be recorded until there is a proposal, if further attempts are like the counted
// ones. It returns 0 if there would never be a proposal.
func needed(r probe.Rule, g goal, c counts) int {
	if c.successes+c.failures == 0 {
		c.successes = 1
	}
	for times := 1.0; times < 1e9; times *= 1.25 {
		longer := c.scaled(times)
		if len(proposals(r, g, longer.estimate())) > 0 {
			return int(math.Ceil(longer.successes + longer.failures))
		}
	}
	return 0
}

func runsRule(r probe.Rule, failures int32) probe.Rule {
	r.Policy, r.FailureThreshold = probe.PolicyRuns, failures
	r.SuccessThreshold = max(r.SuccessThreshold, probe.DefaultSuccessThreshold)
	return r
}

func evidenceRule(r probe.Rule) probe.Rule {
	r.Policy, r.FailureThreshold, r.SuccessThreshold = probe.PolicyEvidence, 0, 0
	return r
}

func detectSeconds(r probe.Rule) float64 {
	return float64(r.FailuresToFail())*r.Period.Seconds() + r.Timeout.Seconds()
}

func newCandidate(r probe.Rule, e estimate, g goal) candidate {
	every := func(n noise) float64 {
		n.Failures = min(n.Failures, maxShare)
		return meanAttempts(r, probe.Passing, n) * r.Period.Seconds()
	}
	one := candidate{Setting: nameOf(r), DetectSeconds: detectSeconds(r), AtLeastSeconds: every(e.worst)}
	inTime := one.DetectSeconds <= g.Detect.Seconds()
	one.likely = inTime
	if e.likely.Failures > 0 {
		one.FalseAlarmSeconds = every(e.likely)
		one.likely = inTime && one.FalseAlarmSeconds*g.FalseAlarms >= 1
	}
	one.Keeps = inTime && one.AtLeastSeconds*g.FalseAlarms >= 1
	return one
}

// alarms returns how often a rule changes from passing to failing with the recorded outcomes. Runs longer than twice the
// highest threshold are truncated, since they have no further effect.
func alarms(r probe.Rule, outcomes []probe.OutcomeRun) (n int) {
	var all []probe.Outcome
	for _, run := range outcomes {
		for range min(run.Attempts, 2*maxThreshold) {
			all = append(all, run.Outcome)
		}
	}
	passed := false
	for _, t := range play(r, false, all).Transitions {
		if t.Verdict == probe.Failing && passed {
			n++
		}
		passed = passed || t.Verdict == probe.Passing
	}
	return n
}
