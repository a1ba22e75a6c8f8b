package restart

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// staticUnits are the units without a driver. Each is reported as one instance, which runs until its unit is removed or
// gets a driver. There may be a million of them, which differ only in their targets.
type staticUnits struct {
	since   map[string]time.Time // by target: when the instance was first reported; zero if not yet
	removed map[string]time.Time // the same for removed units, until their removal is reported
}

func newStaticUnits() staticUnits {
	return staticUnits{since: map[string]time.Time{}, removed: map[string]time.Time{}}
}

// has reports whether a target has a unit without a driver.
func (s *staticUnits) has(target string) bool {
	_, known := s.since[target]
	return known
}

// add adds the unit of a target. If its removal has not been reported, its instance continues.
func (s *staticUnits) add(target string) {
	if _, known := s.since[target]; !known {
		s.since[target] = s.removed[target]
		delete(s.removed, target)
	}
}

// remove removes the unit of a target, if there is one.
func (s *staticUnits) remove(target string) {
	if since, known := s.since[target]; known && !since.IsZero() {
		s.removed[target] = since
	}
	delete(s.since, target)
}

// replace removes the unit of a target that has a driver now: the driver's instances replace the static one.
func (s *staticUnits) replace(target string) {
	delete(s.since, target)
	delete(s.removed, target)
}

// report returns the report for a target whose unit was added, removed, or applied again: the engine may have dropped
// the instance in the meantime (see Engine.Report).
func (s *staticUnits) report(target string, now time.Time) (in probe.Instance, ok bool) {
	if _, removed := s.removed[target]; removed {
		delete(s.removed, target)
		return probe.Instance{Target: target, ID: probe.StaticID, Phase: probe.Gone, Since: now}, true
	}
	since, known := s.since[target]
	if !known {
		return in, false
	}
	if since.IsZero() {
		since = now
		s.since[target] = since
	}
	return probe.Instance{Target: target, ID: probe.StaticID, Phase: probe.Running, Since: since}, true
}
