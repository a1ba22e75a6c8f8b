package restart

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// staticID is the ID of the only instance of a unit without a driver.
const staticID = "static"

// staticUnits are the units without a driver. Each is reported as one instance, which runs
// until its unit is removed or has a driver.
type staticUnits struct {
	since     map[string]time.Time // by target: when the instance was first reported
	repeat    []string             // targets to report again, if they are static: see Engine.Report
	repeatAll bool                 // all are to be reported again
}

// reports returns what is to be reported since the last call. A unit whose supervisor has not
// ended yet is left for the next call.
func (s *staticUnits) reports(units map[string]Unit, supervisors map[string]*supervisor, now time.Time) (reports []probe.Instance) {
	report := func(target string, phase probe.Phase, since time.Time) {
		reports = append(reports, probe.Instance{Target: target, ID: staticID, Phase: phase, Since: since})
	}
	for target, since := range s.since {
		switch u, wanted := units[target]; {
		case !wanted:
			delete(s.since, target)
			report(target, probe.Gone, now)
		case u.Driver != nil:
			delete(s.since, target) // the driver's instances replace it
		case s.repeatAll:
			report(target, probe.Running, since)
		}
	}
	for _, target := range s.repeat {
		if since, known := s.since[target]; known && !s.repeatAll {
			report(target, probe.Running, since)
		}
	}
	s.repeat, s.repeatAll = nil, false
	for target, u := range units {
		if _, known := s.since[target]; !known && u.Driver == nil && supervisors[target] == nil {
			s.since[target] = now
			report(target, probe.Running, now)
		}
	}
	return reports
}
