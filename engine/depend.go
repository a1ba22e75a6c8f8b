package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/cycle"
	"github.com/sonde-probe/sonde/probe"
)

// dependencies are the dependencies between targets. They are immutable once passed to a scheduler.
type dependencies struct {
	of         map[string][]string // by target: the targets that it depends on
	dependents map[string][]string // by target: the targets that depend on it
	others     *Engine             // engine that may have more of them, see FollowDependencies; may be nil
	delay      time.Duration       // until others shows a change
}

func newDependencies(of map[string][]string) dependencies {
	d := dependencies{of: map[string][]string{}, dependents: map[string][]string{}}
	for _, target := range slices.Sorted(maps.Keys(of)) {
		on := slices.Compact(slices.Sorted(slices.Values(of[target])))
		if len(on) == 0 {
			continue
		}
		d.of[target] = on
		for _, name := range on {
			d.dependents[name] = append(d.dependents[name], target)
		}
	}
	return d
}

// setDependencies replaces the dependencies, and updates the states of targets whose dependencies have changed. It needs mu.
func (m *summaries) setDependencies(d dependencies) {
	before := m.dependencies.Load()
	d.others, d.delay = before.others, before.delay
	m.dependencies.Store(&d)
	for target := range before.of {
		if len(d.of[target]) == 0 {
			m.updateDependent(target)
		}
	}
	for target, on := range d.of {
		if !slices.Equal(before.of[target], on) {
			m.updateDependent(target)
		}
	}
}

// check returns an error if a target depends on itself, even indirectly, or on too many targets.
func (d *dependencies) check() error {
	for _, target := range slices.Sorted(maps.Keys(d.of)) {
		if n := len(d.of[target]); n > probe.MaxDependencies {
			return fmt.Errorf("target %q depends on %d targets; at most %d are allowed", target, n, probe.MaxDependencies)
		}
	}
	if cycles := cycle.Find(d.of); len(cycles) > 0 {
		return fmt.Errorf("target %q depends on itself: %s", cycles[0][0], strings.Join(cycles[0], " on "))
	}
	return nil
}

// troubledDependency returns the first dependency of a target that explains its failures, or "".
func (m *summaries) troubledDependency(target string) string {
	d := m.dependencies.Load()
	for _, on := range d.of[target] {
		if m.registry.explains(on) || d.others != nil && d.others.registry.explains(on) {
			return on
		}
	}
	return ""
}

// explains reports whether a target exists and explains failures of its dependents.
func (r *registry) explains(target string) bool {
	t, _ := r.target(target)
	return t != nil && t.gauge.summary().explains
}

// FollowDependencies makes targets of another engine explain failures of their dependents, as targets of this engine do. The
// other engine mirrors engines that share targets with this one, with a delay of at most delay. A target may be in both engines
// while it moves. FollowDependencies returns when ctx is done. Later changes in the other engine are ignored, and its state as of
// then remains in effect until UnfollowDependencies is called, which must precede another call of FollowDependencies.
func (a Admin) FollowDependencies(ctx context.Context, other *Engine, delay time.Duration) {
	changes := other.SubscribeTargets()
	defer changes.Close()
	a.setOthers(other, delay)
	a.followDependencies(ctx, changes.changes)
}

// followDependencies updates the states of targets when their dependencies in the other engine change, until ctx is done. It
// locks mu only for targets that have dependents, which are few.
func (a Admin) followDependencies(ctx context.Context, changes *Subscription) {
	sc := a.engine.scheduler
	for {
		id, err := changes.next(ctx)
		if err != nil {
			return
		}
		if len(sc.summaries.dependencies.Load().dependents[id.Target]) == 0 {
			continue // if it gets dependents later, they are updated then
		}
		sc.mu.Lock()
		sc.summaries.updateDependents(id.Target)
		sc.unlock()
	}
}

// UnfollowDependencies ends the effect of the other engine's targets, since its information may be out of date. Call it after
// FollowDependencies has returned.
func (a Admin) UnfollowDependencies() { a.setOthers(nil, 0) }

// setOthers sets the other engine with dependencies, or nil for none, and updates the states of all targets that have
// dependencies.
func (a Admin) setOthers(other *Engine, delay time.Duration) {
	m := &a.engine.scheduler.summaries
	a.engine.scheduler.mu.Lock()
	defer a.engine.scheduler.unlock()
	d := *m.dependencies.Load()
	d.others, d.delay = other, delay
	m.dependencies.Store(&d)
	for target := range d.of {
		m.updateDependent(target)
	}
}

// Dependency is a target on which other targets may depend.
type Dependency struct {
	TargetStatus
	IsOther bool          // it is probed elsewhere: it is a target of the engine that FollowDependencies follows
	Delay   time.Duration // maximum time until a change of the target is known here; 0 unless IsOther
}

// Dependency returns a target on which others may depend, and whether it exists. If this engine has no target of that name with
// probes, Dependency returns the target of the engine that FollowDependencies follows. It is safe for concurrent use.
func (a Admin) Dependency(name string) (d Dependency, ok bool) {
	st, ok := a.engine.Target(name)
	all := a.engine.scheduler.summaries.dependencies.Load()
	if len(st.Probes) == 0 && all.others != nil {
		if other, isThere := all.others.Target(name); isThere {
			return Dependency{other, true, all.delay}, true
		}
	}
	return Dependency{TargetStatus: st}, ok
}

// troubledDependency returns the first dependency of a target that is in trouble or unreachable, so that it explains failures of
// the target, or "". The result does not depend on whether the target fails. When a failing verdict is published, the result is
// already up to date, unlike TargetStatus.TroubledDependency, which is updated after the verdict.
func (a Admin) troubledDependency(target string) string {
	a.engine.scheduler.mu.Lock()
	defer a.engine.scheduler.mu.Unlock()
	return a.engine.scheduler.summaries.troubledDependency(target)
}

// Dependencies returns the targets that a target depends on, sorted by name. They need not exist. It is safe for concurrent use.
func (a Admin) Dependencies(target string) []string {
	return slices.Clone(a.engine.scheduler.summaries.dependencies.Load().of[target])
}

// updateDependent updates the state of a target that has dependencies, if the target exists.
func (m *summaries) updateDependent(target string) {
	if t, _ := m.registry.target(target); t != nil {
		m.updateState(t)
	}
}

// updateDependents updates the states of the targets that depend on a target.
func (m *summaries) updateDependents(target string) {
	for _, dependent := range m.dependencies.Load().dependents[target] {
		m.updateDependent(dependent)
	}
}

// setTroubledDependency sets the dependency that explains the failures of a target, or "" for none. It reports whether it has
// changed.
func (r *registry) setTroubledDependency(t *target, on string) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.targets[t.name] != t || r.states.explained[t] == on {
		return false
	}
	if delete(r.states.explained, t); on != "" {
		r.states.explained[t] = on
	}
	return true
}

// troubledDependency returns the dependency that explains the failures of a target, or "".
func (r *registry) troubledDependency(t *target) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.states.explained[t]
}

// stateAmongDependencies returns the state of a target, given its own state without regard to dependencies, and the dependency
// that explains it, or "".
func (m *summaries) stateAmongDependencies(t *target, own probe.TargetState) (state probe.TargetState, on string) {
	if state = verdict.OfDependent(own); state == own {
		return own, ""
	}
	if on = m.troubledDependency(t.name); on == "" {
		return own, ""
	}
	return state, on
}
