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

// Maintenance says at which times nothing is to be done about some targets.
type Maintenance struct {
	Members probe.Selector // the targets
	Windows cron.Windows   // by the wall clock; they must begin at some time
	Why     string         // may be empty
}

// MaintenanceStatus says when a Maintenance is, or is next.
type MaintenanceStatus struct {
	Name    string
	Active  bool // From is not in the future
	From    time.Time
	To      time.Time
	Why     string
	Targets int // how many are under maintenance because of it; 0 unless it is Active
}

// maintained is a Maintenance that a Keeper follows.
type maintained struct {
	Maintenance
	name   string
	window cron.Window // in which the wall clock is, or the next one
	seen   time.Time   // when window was found: it holds from then to its end
	active bool        // as the log has said
}

// look finds the window again if the wall clock has left it, or was set back.
func (m *maintained) look(wall time.Time) {
	if m.window.To.IsZero() || wall.Before(m.seen) || !wall.Before(m.window.To) {
		m.window, _ = m.Windows.At(wall)
	}
	m.seen = wall
}

// forEngine returns the maintenance as the engine has it.
func (m *maintained) forEngine() engine.Pause {
	detail := m.name
	if m.Why != "" {
		detail += ": " + m.Why
	}
	return engine.Pause{Reason: probe.ReasonMaintenance, Detail: detail, Since: m.window.From.UTC(), Until: m.window.To.UTC()}
}

// Maintain replaces what is maintained, by name, at once. Upcoming are the labels of targets that the
// engine does not have, and may get at any time until the next call: nobody ever sees them without their
// maintenance. Call it again when targets, or their labels, have changed.
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
			k.config.Logger.Info("maintenance has ended, its block was removed", "maintenance", m.name, "why", m.Why, "from", m.window.From)
		}
	}
	k.upcoming = upcoming
	k.lookAtMaintenances()
	k.applyMaintenances()
	k.wake.Set()
}

// lookAtMaintenances brings the windows up to date, and reports whether one has begun or ended. It
// needs pausesMu.
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

// applyMaintenances tells the engine which targets are under maintenance now. Of several maintenances
// the one counts that ends last. It needs pausesMu.
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

// tell tells the engines whether a target is paused, or else under maintenance. It needs pausesMu.
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

// Maintenances returns when each Maintenance is, or is next, sorted by time and name.
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
