package pause

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/cron"
	"github.com/sonde-probe/sonde/probe"
)

// Maintenance specifies the times during which the engine takes no action on some targets.
type Maintenance struct {
	Members probe.Selector // the targets
	Windows cron.Windows   // by the wall clock; must occur at some time
	Why     string         // may be empty
}

// MaintenanceStatus is the current or next window of a Maintenance.
type MaintenanceStatus struct {
	Name    string
	Active  bool // the window has begun
	From    time.Time
	To      time.Time
	Why     string
	Targets int // number of targets under this maintenance; 0 unless Active
}

// maintained is a Maintenance with its current state.
type maintained struct {
	Maintenance
	name   string
	window cron.Window // current window, or the next one
	seen   time.Time   // wall-clock time of the latest look
	active bool        // active according to the log
}

// look recomputes the window if the wall clock has left it or was set back.
func (m *maintained) look(wall time.Time) {
	if m.window.To.IsZero() || wall.Before(m.seen) || !wall.Before(m.window.To) {
		m.window, _ = m.Windows.At(wall)
	}
	m.seen = wall
}

// forEngine returns the maintenance in the form that the engine takes.
func (m *maintained) forEngine() engine.Pause {
	detail := m.name
	if m.Why != "" {
		detail += ": " + m.Why
	}
	return engine.Pause{Reason: probe.ReasonMaintenance, Detail: detail, Since: m.window.From.UTC(), Until: m.window.To.UTC()}
}

// Maintain replaces all maintenances, by name, and applies them immediately. upcoming has the labels of targets that the
// engine does not have yet and may get before the next call: no reader ever sees them without their maintenance. Call
// Maintain again when targets or their labels have changed.
func (k *Keeper) Maintain(all map[string]Maintenance, upcoming map[string]map[string]string) {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	before := k.maintained
	k.maintained = nil
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := &maintained{Maintenance: all[name], name: name}
		if i := slices.IndexFunc(before, func(b *maintained) bool { return b.name == name }); i >= 0 {
			m.active = before[i].active
		}
		k.maintained = append(k.maintained, m)
	}
	for _, m := range before {
		if _, goesOn := all[m.name]; m.active && !goesOn {
			k.config.Logger.Info("maintenance ended: its block was removed", "maintenance", m.name, "why", m.Why, "from", m.window.From)
		}
	}
	k.upcoming = upcoming
	k.lookAtMaintenances()
	k.applyMaintenances()
	k.wake.Set()
}

// lookAtMaintenances updates the windows, and reports whether any has begun or ended. It needs pausesMu.
func (k *Keeper) lookAtMaintenances() (changed bool) {
	wall := k.wallClock()
	for _, m := range k.maintained {
		before := m.window
		m.look(wall)
		active := m.window.Contains(wall)
		changed = changed || active != m.active || active && before != m.window
		if active != m.active {
			message := "maintenance has ended"
			if active {
				message = "maintenance has begun"
			}
			k.config.Logger.Info(message, "maintenance", m.name, "why", m.Why, "from", m.window.From, "to", m.window.To)
		}
		m.active = active
	}
	return changed
}

// applyMaintenances reports to the engines which targets are under maintenance now. If several maintenances apply to a
// target, the one that ends last counts. It needs pausesMu.
func (k *Keeper) applyMaintenances() {
	active := slices.DeleteFunc(slices.Clone(k.maintained), func(m *maintained) bool { return !m.active })
	slices.SortStableFunc(active, func(a, b *maintained) int { return b.window.To.Compare(a.window.To) })
	under := map[string]*maintained{}
	add := func(target string, m *maintained) {
		if under[target] == nil {
			under[target] = m
		}
	}
	for _, m := range active {
		for t := range k.config.Engine.Select(context.Background(), engine.Filter{Selectors: []probe.Selector{m.Members}}) {
			add(t.Target, m)
		}
		for target, labels := range k.upcoming {
			if m.Members.Matches(target, labels) {
				add(target, m)
			}
		}
	}
	before := k.under
	k.under = under
	for target := range before {
		if under[target] == nil {
			k.tell(target)
		}
	}
	for target := range under {
		k.tell(target)
	}
}

// tell reports to the engines whether a target is paused, or else under maintenance. It needs pausesMu.
func (k *Keeper) tell(target string) {
	var now *engine.Pause
	if p, isPaused := k.paused[target]; isPaused {
		now = new(p.forEngine())
	} else if m := k.under[target]; m != nil {
		now = new(m.forEngine())
	}
	for _, e := range []*engine.Engine{k.config.Others, k.config.Engine} {
		switch {
		case e == nil:
		case now != nil:
			e.Admin().Pause(target, *now)
		default:
			e.Admin().Unpause(target)
		}
	}
}

// Maintenances returns the current or next window of each Maintenance, sorted by time and name.
func (k *Keeper) Maintenances() []MaintenanceStatus {
	k.pausesMu.Lock()
	defer k.pausesMu.Unlock()
	targets := map[*maintained]int{}
	for _, m := range k.under {
		targets[m]++
	}
	all := make([]MaintenanceStatus, 0, len(k.maintained))
	for _, m := range k.maintained {
		all = append(all, MaintenanceStatus{m.name, m.active, m.window.From, m.window.To, m.Why, targets[m]})
	}
	slices.SortFunc(all, func(a, b MaintenanceStatus) int {
		return cmp.Or(a.From.Compare(b.From), strings.Compare(a.Name, b.Name))
	})
	return all
}
