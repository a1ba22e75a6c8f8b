package doubt

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Targets counts what an engine knows of its targets, for its observations. The zero Targets has none. It is
// not safe for concurrent use.
type Targets struct {
	verdicts map[string]verdicts
	failing  map[string]time.Time // when they turned to failing; zero: before they were known
	decided  int                  // how many have a verdict
}

// verdicts are those of one target.
type verdicts struct {
	now  probe.Verdict
	last probe.Verdict // the last one that was passing or failing; Undecided if there was none
}

// Set says which verdict a target has at a time: it fails if one of its probes does. A target that fails when
// its first verdict is known, as one that was taken over from another engine, has not turned to failing.
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
