package restart

import (
	"fmt"

	"github.com/sonde-probe/sonde/probe"
)

// Effect describes what Apply would do to the units in use.
type Effect struct {
	Units     int      // number of units in use
	Added     []string // targets without a unit so far
	Removed   []string // targets whose units would be removed
	Restarted []string // targets whose instances would be terminated, whether or not a new instance follows

	Run   int // units of Units whose instances the controller runs: their driver is not External
	Ended int // units of Run that would be removed or restarted
}

// minGuarded is the minimum number of units for which Exceeds limits an Effect. With only a few units, changing half of
// them is often intended.
const minGuarded = 10

// Exceeds reports whether an Effect removes or restarts more than the given share of at least ten units, or of at least
// ten units whose instances the controller runs. The likely cause is a truncated file, or a list that is empty by
// mistake.
func (e Effect) Exceeds(guard probe.Share) bool {
	return exceeds(len(e.Removed)+len(e.Restarted), e.Units, guard) || exceeds(e.Ended, e.Run, guard)
}

// exceeds reports whether part is more than a share of at least minGuarded. It tolerates rounding: 29 of 100 are not
// more than 29 %, whatever the binary fraction.
func exceeds(part, of int, guard probe.Share) bool {
	return of >= minGuarded && isMore(part, of, guard)
}

// isMore is exceeds without the minimum.
func isMore(part, of int, share probe.Share) bool {
	const tolerance = 1e-6
	return float64(part) > float64(share)*float64(of)+tolerance
}

// String returns a summary such as "remove 12 and restart 3 of 20 targets, and end 5 of 8 processes".
func (e Effect) String() string {
	text := fmt.Sprintf("remove %d and restart %d of %d targets", len(e.Removed), len(e.Restarted), e.Units)
	if e.Ended > 0 {
		text += fmt.Sprintf(", and end %d of %d processes", e.Ended, e.Run)
	}
	return text
}

// EffectOfApply returns the Effect that Apply would have now. It leaves out units that Config.IsShared reports as
// shared.
func (c *Controller) EffectOfApply(units map[string]Unit) Effect {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	var e Effect
	for target := range c.own() {
		if e.Units++; c.units[target].runs() {
			e.Run++
		}
	}
	for _, target := range missing(c.own(), units) {
		if e.Removed = append(e.Removed, target); c.units[target].runs() {
			e.Ended++
		}
	}
	for target, u := range units {
		old, driven := c.units[target]
		if !driven && !c.static.has(target) {
			e.Added = append(e.Added, target)
		}
		if old.runs() && !u.continues(old) {
			e.Restarted = append(e.Restarted, target)
			e.Ended++
		}
	}
	return e
}
