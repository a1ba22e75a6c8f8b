package simulate

import (
	"fmt"
	"io"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Shares of attempts that are high in normal operation, for which mistakes are computed: the highest share that the rule
// expects, and a higher one that may occur.
const (
	usuallyHigh = 0.02
	oftenHigh   = 0.05
)

// rise describes how good warn_on_rise is if attempts are independent: see verdict.Level.
type rise struct {
	DetectAttempts  float64 `json:"detectAttempts"`  // until a rise of all attempts is found
	HalfAttempts    float64 `json:"halfAttempts"`    // mean, if half of the attempts have risen
	DegradedAfter   int32   `json:"degradedAfter"`   // further attempts until the target is degraded
	MistakeEvery    float64 `json:"mistakeEvery"`    // mean attempts from one mistake to the next if 2 % of attempts are high in normal operation
	MistakesPerYear float64 `json:"mistakesPerYear"` // likewise, as a rate
	OftenPerYear    float64 `json:"oftenPerYear"`    // mistakes per year if 5 % are high
}

// riseOf returns how good a rule finds rises, or nil if it has no warn_on_rise.
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

// yearSeconds is the length of a year in seconds.
const yearSeconds = 365.25 * 24 * 60 * 60

// attemptsToRise returns the mean number of attempts until a verdict.Level has risen. high is the probability that an attempt
// is high.
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

// write writes the figures as text.
func (q *rise) write(w io.Writer, r probe.Rule) error {
	_, err := fmt.Fprintf(w, "\nwarn_on_rise = %q: a rise of all attempts is found after %s attempts, %s, one of half of them after %s; the target is degraded %d attempts later.\n"+
		"If 2%% of attempts are usually high, independently, there is one mistake in %s attempts: %.2g a year. If 5%% are, %.2g a year.\n",
		r.WarnOnRise, rounded(q.DetectAttempts), lasting(q.DetectAttempts*r.Period.Seconds()), rounded(q.HalfAttempts), q.DegradedAfter,
		rounded(q.MistakeEvery), q.MistakesPerYear, q.OftenPerYear)
	return err
}
