package simulate

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// maxOutcomes limits the number of outcomes to play.
const maxOutcomes = 1_000_000

// parseOutcomes parses outcomes in the format of probe.ParseOutcomes.
func parseOutcomes(text string) (all []probe.Outcome, err error) {
	runs, err := probe.ParseOutcomes(text)
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		if run.Attempts > uint64(maxOutcomes-len(all)) {
			return nil, fmt.Errorf("there are more than %d outcomes", maxOutcomes)
		}
		for range run.Attempts {
			all = append(all, run.Outcome)
		}
	}
	return all, nil
}

// transition is a change of the verdict, even if it comes with a new instance, or a restart.
type transition struct {
	Attempt  int           `json:"attempt"` // its number, from 1
	Verdict  probe.Verdict `json:"verdict"`
	Restarts bool          `json:"restarts,omitempty"` // the instance is restarted because the probe fails
}

// played is the result of playing outcomes by a rule.
type played struct {
	Setting     string       `json:"setting"` // nameOf of the rule
	Transitions []transition `json:"transitions"`
	Attempts    int          `json:"attempts"`
	Failing     int          `json:"failing"`  // number of attempts after which the verdict was failing
	Restarts    int          `json:"restarts"` // of the instance
}

// playAll plays outcomes by rule r, and then by the alternatives in settings.
func playAll(r probe.Rule, managed bool, outcomes []probe.Outcome) (all []played) {
	for _, rule := range settings(r) {
		all = append(all, play(rule, managed, outcomes))
	}
	return all
}

// play plays outcomes at the regular times of a probe. If managed is true, a driver replaces the instance immediately when the
// probe is on hold.
func play(r probe.Rule, managed bool, outcomes []probe.Outcome) played {
	p := played{Setting: nameOf(r), Transitions: []transition{}, Attempts: len(outcomes)}
	in := instance
	in.Managed = managed
	r.InitialDelay = 0
	var s verdict.State
	for i, o := range outcomes {
		before := s.Verdict
		look := verdict.Event{Instance: in, Started: r.Kind != probe.Startup}
		s, _ = verdict.Step(r, s, look, time.Time{})
		s, _ = verdict.Step(r, s, verdict.Event{Attempted: true, Instance: in, Outcome: o}, time.Time{})
		restarts := s.OnHold && s.Verdict == probe.Failing
		if s.Verdict != before || restarts {
			p.Transitions = append(p.Transitions, transition{i + 1, s.Verdict, restarts})
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
