package restart

import (
	"fmt"

	"github.com/sonde-probe/sonde/probe"
)

// Effect is what an Apply would do to the units in use.
type Effect struct {
	Units     int      // in use now
	Added     []string // targets that have no unit now
	Removed   []string // targets whose units would be removed
	Restarted []string // targets whose instances would be terminated, with or without another one after them

	Run   int // those of Units whose instances the controller runs: they have a driver that is not External
	Ended int // those of Run that would be removed or restarted
}

// minGuarded is the number of units from which on Exceeds limits an Effect. Of a few,
// half is often meant.
const minGuarded = 10

// Exceeds reports whether an Effect removes or restarts more than a share of at least ten
// units, or of at least ten whose instances the controller runs: probably because a file was
// cut off, or a list is empty by mistake.
func (e Effect) Exceeds(guard probe.Share) bool {
	return exceeds(len(e.Removed)+len(e.Restarted), e.Units, guard) || exceeds(e.Ended, e.Run, guard)
}

// exceeds reports whether a part of a number is more than a share of it, as people reckon:
// 29 of 100 are 29 %, whatever the fraction is in binary.
func exceeds(part, of int, guard probe.Share) bool {
	return of >= minGuarded && isMore(part, of, guard)
}

// isMore is exceeds of any number.
func isMore(part, of int, share probe.Share) bool {
	const tolerance = 1e-6
	return float64(part) > float64(share)*float64(of)+tolerance
}

// String returns the numbers: "remove 12 and restart 3 of 20 targets, and end 5 of 8
// processes".
func (e Effect) String() string {
	text := fmt.Sprintf("remove %d and restart %d of %d targets", len(e.Removed), len(e.Restarted), e.Units)
	if e.Ended > 0 {
		text += fmt.Sprintf(", and end %d of %d processes", e.Ended, e.Run)
	}
	return text
}

// EffectOfApply returns what Apply would do now. It counts no units that Config.IsShared names.
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
