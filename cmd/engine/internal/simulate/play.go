package simulate

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// MaxOutcomes bounds the outcomes that are played.
const MaxOutcomes = 1_000_000

// ParseOutcomes reads outcomes as probe.ParseOutcomes does.
func ParseOutcomes(text string) (all []probe.Outcome, err error) {
	runs, err := probe.ParseOutcomes(text)
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		if run.Attempts > uint64(MaxOutcomes-len(all)) {
			return nil, fmt.Errorf("there are more than %d outcomes", MaxOutcomes)
		}
		for range run.Attempts {
			all = append(all, run.Outcome)
		}
	}
	return all, nil
}

// Transition is a verdict that has turned, also with another instance, or a restart.
type Transition struct {
	Attempt  int           `json:"attempt"` // its number, from 1
	Verdict  probe.Verdict `json:"verdict"`
	Restarts bool          `json:"restarts,omitempty"` // the instance is restarted since the probe fails
}

// Played is what a rule makes of outcomes.
type Played struct {
	Setting     string       `json:"setting"` // Name of the rule
	Transitions []Transition `json:"transitions"`
	Attempts    int          `json:"attempts"`
	Failing     int          `json:"failing"`  // after how many attempts the verdict was failing
	Restarts    int          `json:"restarts"` // of the instance
}

// PlayAll plays outcomes by rule r, and then by those that Compare has beside it.
func PlayAll(r probe.Rule, managed bool, outcomes []probe.Outcome) (all []Played) {
	for _, rule := range settings(r) {
		all = append(all, Play(rule, managed, outcomes))
	}
	return all
}

// Play plays outcomes at the regular times of a probe. With managed, a driver replaces the instance
// at once when the probe is on hold.
func Play(r probe.Rule, managed bool, outcomes []probe.Outcome) Played {
	p := Played{Setting: Name(r), Transitions: []Transition{}, Attempts: len(outcomes)}
	in := instance
	in.Managed = managed
	r.InitialDelay = 0
	var s verdict.State
	for i, o := range outcomes {
		before := s.Verdict
		look := verdict.Event{Type: verdict.Looked, Instance: in, Started: r.Kind != probe.Startup}
		s, _ = verdict.Step(r, s, look, time.Time{})
		s, _ = verdict.Step(r, s, verdict.Event{Type: verdict.Attempted, Instance: in, Outcome: o}, time.Time{})
		restarts := s.OnHold && s.Verdict == probe.Failing
		if s.Verdict != before || restarts {
			p.Transitions = append(p.Transitions, Transition{i + 1, s.Verdict, restarts})
		}
		if s.Verdict == probe.Failing {
			p.Failing++
		}
		if restarts {
			p.Restarts++
			in.ID = strconv.Itoa(p.Restarts + 1)
		}
	}
	return p
}
