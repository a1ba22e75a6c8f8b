package doubt

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Targets counts an engine's targets by verdict, for its observations. The zero Targets is empty. It is not safe for
// concurrent use.
type Targets struct {
	verdicts map[string]verdicts
	failing  map[string]time.Time // when they turned to failing; zero: they failed at their first verdict
	decided  int                  // number of targets with a verdict
}

// verdicts are the verdicts of one target.
type verdicts struct {
	now  probe.Verdict
	last probe.Verdict // the last verdict other than Undecided; Undecided if there was none
}

// Set sets the verdict of a target at a time: failing if one of its probes fails. A target whose first verdict is
// failing, such as one that was taken over from another engine, does not count as having turned to failing.
func (t *Targets) Set(target string, v probe.Verdict, now time.Time) {
	if t.verdicts == nil {
		t.verdicts, t.failing = map[string]verdicts{}, map[string]time.Time{}
	}
	before := t.verdicts[target]
	if v == before.now {
		return
	}
	if before.now != probe.Undecided {
		t.decided--
	}
	after := verdicts{v, before.last}
	if v != probe.Undecided {
		t.decided++
		after.last = v
	}
	t.verdicts[target] = after
	switch {
	case v == probe.Failing && before.last == probe.Passing:
		t.failing[target] = now
	case v == probe.Failing:
		t.failing[target] = time.Time{}
	default:
		delete(t.failing, target)
	}
}

// Remove removes a target that the engine no longer probes.
func (t *Targets) Remove(target string) {
	if t.verdicts[target].now != probe.Undecided {
		t.decided--
	}
	delete(t.verdicts, target)
	delete(t.failing, target)
}

// Count returns Observation.Own and Observation.New at a time.
func (t *Targets) Count(now time.Time) (own Sample, turned int) {
	for _, at := range t.failing {
		if isWithin(window, at, now) {
			turned++
		}
	}
	return Sample{Targets: t.decided, Failing: len(t.failing)}, turned
}
