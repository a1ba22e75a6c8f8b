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

// dependencies are the targets that others depend on. They are not changed once a scheduler has them.
type dependencies struct {
	of         map[string][]string // by target: those that it depends on
	dependents map[string][]string // by target: those that depend on it
	others     *Engine             // may have some of them, see FollowDependencies; nil for none
	delay      time.Duration       // until others shows what has happened to them
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

// setDependencies replaces the dependencies, and brings the states of the targets up to date whose
// are other ones. It needs mu.
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

// check returns an error about a target that depends on itself or on too many.
func (d *dependencies) check() error {
	for _, target := range slices.Sorted(maps.Keys(d.of)) {
		if n := len(d.of[target]); n > probe.MaxDependencies {
			return fmt.Errorf("target %q depends on %d targets, at most %d are allowed", target, n, probe.MaxDependencies)
		}
	}
	if cycles := cycle.Find(d.of); len(cycles) > 0 {
		return fmt.Errorf("target %q depends on itself: %s", cycles[0][0], strings.Join(cycles[0], " on "))
	}
	return nil
}

// troubledDependency returns the first target that one depends on and that explains its failures,
// or "".
func (m *summaries) troubledDependency(target string) string {
	d := m.dependencies.Load()
	for _, on := range d.of[target] {
		if m.registry.explains(on) || d.others != nil && d.others.registry.explains(on) {
			return on
		}
	}
	return ""
}

// explains reports whether there is a target that explains failures of those that depend on it.
func (r *registry) explains(target string) bool {
	t, _ := r.target(target)
	return t != nil && t.gauge.summary().explains
}

// FollowDependencies makes targets of another engine explain failures of those that depend on them, as targets of this
// engine do: the other one shows what engines find out that share targets with this one, at most delay after it has
// happened. A target may be in both while it moves.
// It returns when ctx is done; what the other engine shows later is not noticed, and what it has shown until then stands
// until UnfollowDependencies is called. Call it again only after that.
func (a Admin) FollowDependencies(ctx context.Context, other *Engine, delay time.Duration) {
	changes := other.SubscribeTargets()
	defer changes.Close()
	a.setOthers(other, delay)
	a.followDependencies(ctx, changes.changes)
}

// followDependencies brings the states of those targets up to date that depend on others that have changed, until ctx
// is done. Of many targets few have dependents: it locks mu for these only.
func (a Admin) followDependencies(ctx context.Context, changes *Subscription) {
	sc := a.engine.scheduler
	for {
		id, err := changes.next(ctx)
		if err != nil {
			return
		}
		if len(sc.summaries.dependencies.Load().dependents[id.Target]) == 0 {
			continue // those that it gets later are brought up to date then
		}
		sc.mu.Lock()
		sc.summaries.updateDependents(id.Target)
		sc.unlock()
	}
}

// UnfollowDependencies makes targets of the other engine that FollowDependencies has followed explain nothing, since
// what it shows may be out of date. Call it after FollowDependencies has returned.
func (a Admin) UnfollowDependencies() { a.setOthers(nil, 0) }

// setOthers sets which other engine has dependencies, nil for none, and updates the states of all targets that depend on any.
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

// Dependency is a target on which others may depend.
type Dependency struct {
	TargetStatus
	IsOther bool          // attempts at it are made elsewhere: it is a target of the engine that FollowDependencies follows
	Delay   time.Duration // how long it takes at most until what has happened to it is known here; 0 unless IsOther
}

// Dependency returns a target on which others may depend, and whether there is one: of this engine or, if it has none of
// that name with probes, of the other one that FollowDependencies follows. Several goroutines may call it at once.
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

// troubledDependency returns the first target that one depends on and that is in trouble, or
// unreachable itself, so that it explains failures of the one; "" if there is none. That holds
// whether or not the one fails. It is up to date when a failing verdict is published, unlike
// TargetStatus.TroubledDependency, which follows the verdict.
func (a Admin) troubledDependency(target string) string {
	a.engine.scheduler.mu.Lock()
	defer a.engine.scheduler.mu.Unlock()
	return a.engine.scheduler.summaries.troubledDependency(target)
}

// Dependencies returns the targets that one depends on, sorted by name. They need not exist. Several
// goroutines may call it at once.
func (a Admin) Dependencies(target string) []string {
	return slices.Clone(a.engine.scheduler.summaries.dependencies.Load().of[target])
}

// updateDependent brings the state of a target that depends on others up to date, if it exists.
func (m *summaries) updateDependent(target string) {
	if t, _ := m.registry.target(target); t != nil {
		m.updateState(t)
	}
}

// updateDependents does that for those that depend on a target.
func (m *summaries) updateDependents(target string) {
	for _, dependent := range m.dependencies.Load().dependents[target] {
		m.updateDependent(dependent)
	}
}

// setTroubledDependency sets which dependency explains the failures of a target; "" for none. It
// reports whether that was another one.
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

// troubledDependency returns which dependency explains the failures of a target, or "".
func (r *registry) troubledDependency(t *target) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.states.explained[t]
}

// stateAmongDependencies returns the state of a target, whose own instance and probes give it one,
// and which dependency explains it, or "".
func (m *summaries) stateAmongDependencies(t *target, own probe.TargetState) (state probe.TargetState, on string) {
	if state = verdict.OfDependent(own); state == own {
		return own, ""
	}
	if on = m.troubledDependency(t.name); on == "" {
		return own, ""
	}
	return state, on
}
