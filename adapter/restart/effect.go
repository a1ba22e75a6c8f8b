package restart

import (
	"fmt"

	"github.com/sonde-probe/sonde/probe"
)

// Effect is what an Apply or a Change would do to the units in use.
type Effect struct {
	Units     int      // in use now
	Removed   []string // targets whose units would be removed
	Restarted []string // targets whose instances would be terminated, with or without another one after them
}

// minGuarded is the number of units from which on Exceeds limits an Effect. Of a few,
// half is often meant.
const minGuarded = 10

// Exceeds reports whether an Effect removes or restarts more than a share of at least ten
// units: probably because a file was cut off, or a list is empty by mistake.
func (e Effect) Exceeds(guard probe.Share) bool {
	return e.Units >= minGuarded && float64(len(e.Removed)+len(e.Restarted)) > float64(guard)*float64(e.Units)
}

// String returns the numbers: "remove 12 and restart 3 of 20 targets".
func (e Effect) String() string {
	return fmt.Sprintf("remove %d and restart %d of %d targets", len(e.Removed), len(e.Restarted), e.Units)
}

// EffectOfApply returns what Apply would do now.
func (c *Controller) EffectOfApply(units map[string]Unit) Effect {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	var removed []string
	for target := range c.units {
		if _, kept := units[target]; !kept {
			removed = append(removed, target)
		}
	}
	return effect(c.units, units, removed)
}

// EffectOfChange returns what Change would do now.
func (c *Controller) EffectOfChange(units map[string]Unit, remove []string) Effect {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	return effect(c.units, units, remove)
}

// effect compares units in use with those that replace them.
func effect(before, after map[string]Unit, remove []string) Effect {
	e := Effect{Units: len(before)}
	for _, target := range remove {
		if _, used := before[target]; used {
			e.Removed = append(e.Removed, target)
		}
	}
	for target, u := range after {
		old := before[target]
		if old.Driver != nil && !old.external() && !u.continues(old) {
			e.Restarted = append(e.Restarted, target)
		}
	}
	return e
}
