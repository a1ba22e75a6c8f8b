package verdict

import (
	"cmp"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Period returns the interval between two attempts of a probe in state s. decided means that a run of attempts on the instance
// has reached its threshold.
func Period(r probe.Rule, s State, decided bool) time.Duration {
	switch {
	case !decided:
		return cmp.Or(r.StartingPeriod, r.Period)
	case s.Verdict == probe.Failing, s.Last == probe.Failure && s.Run > 0, s.Score() > 0:
		return cmp.Or(r.FailingPeriod, r.Period)
	}
	return r.Period
}
