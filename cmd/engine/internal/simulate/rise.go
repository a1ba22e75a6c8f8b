package simulate

import (
	"fmt"
	"io"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// The shares of attempts that are usually high for which mistakes are computed: what the rule expects, at most, and what it may meet.
const (
	usuallyHigh = 0.02
	oftenHigh   = 0.05
)

// rise is how good warn_on_rise is, if attempts are independent: see verdict.Level.
type rise struct {
	DetectAttempts  float64 `json:"detectAttempts"`  // until a level is found that has risen for all attempts
	HalfAttempts    float64 `json:"halfAttempts"`    // mean, if it has risen for half of the attempts
	DegradedAfter   int32   `json:"degradedAfter"`   // attempts more until the target is degraded
	MistakeEvery    float64 `json:"mistakeEvery"`    // mean attempts from one mistake to the next, if 2 % of attempts are usually high
	MistakesPerYear float64 `json:"mistakesPerYear"` // likewise
	OftenPerYear    float64 `json:"oftenPerYear"`    // if 5 % are
}

// riseOf returns how good the rule finds that a level has risen, or nil if it does not look.
func riseOf(r probe.Rule) *rise {
	if r.WarnOnRise == "" {
		return nil
	}
	perYear := yearSeconds / r.Period.Seconds()
	return &rise{
		attemptsToRise(1), attemptsToRise(0.5), r.FailuresToFail() - 1,
		attemptsToRise(usuallyHigh), perYear / attemptsToRise(usuallyHigh), perYear / attemptsToRise(oftenHigh),
	}
}

// yearSeconds is a year.
const yearSeconds = 365.25 * 24 * 60 * 60

// attemptsToRise returns the mean number of attempts until a verdict.Level has risen, if each is high with a probability.
func attemptsToRise(high float64) float64 {
	c := &chain{}
	for score := range verdict.LevelScore {
		row, absorb := make([]float64, verdict.LevelScore), 0.0
		row[max(0, score-1)] += 1 - high
		if after := score + verdict.LevelWeight; after < verdict.LevelScore {
			row[after] += high
		} else {
			absorb = high
		}
		c.next, c.absorb = append(c.next, row), append(c.absorb, absorb)
	}
	return c.solve()
}

// write writes the figures for people.
func (q *rise) write(w io.Writer, r probe.Rule) error {
	_, err := fmt.Fprintf(w, "\nwarn_on_rise = %q: a rise of all attempts is found after %s attempts, %s, one of half of them after %s; the target is degraded %d attempts later.\n"+
		"If 2%% of attempts are usually high, independently, there is one mistake in %s attempts: %.2g a year. If 5%% are, %.2g a year.\n",
		r.WarnOnRise, rounded(q.DetectAttempts), lasting(q.DetectAttempts*r.Period.Seconds()), rounded(q.HalfAttempts), q.DegradedAfter,
		rounded(q.MistakeEvery), q.MistakesPerYear, q.OftenPerYear)
	return err
}
