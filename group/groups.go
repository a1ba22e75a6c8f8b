package group

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// Engine is the part of *engine.Engine, or of *engine.Union, that Groups uses.
type Engine interface {
	SubscribeTargets() *engine.TargetSubscription
	Health() engine.Health
	Doubts(probe.ID) bool
}

// Config configures Groups.
type Config struct {
	Engine Engine // required

	// Reserved returns the targets of a group whose restarts other engines have reserved: see Groups.Acquire. It
	// must not block. Default: none.
	Reserved func(group string) []string

	// Logger gets a Warn line when a group is no longer ready, or when all members are used because too few are ready, and
	// an Info line when either condition is over. It gets none while the group is undecided. Default: no log.
	Logger *slog.Logger
}

// Groups are the groups of an engine's targets. Create them with New, and call Run once. The other methods are safe for
// concurrent use by multiple goroutines, including before Run.
type Groups struct {
	engine   Engine
	logger   *slog.Logger
	reserved func(group string) []string // by other engines
	resub    wake.Signal                 // sub was replaced

	mu       sync.Mutex // guards all below, and the Views of the groups; locks of the engine are taken while it is held
	byName   map[string]*Group
	sub      *engine.TargetSubscription // nil while there are no groups
	held     int                        // calls of Hold that have not been released
	isolated bool                       // the engine is isolated: no member enters or leaves rotation
	targets  map[string]*target         // all targets of the engine, by name
	doubtful map[*target]bool           // targets that are down for a reason that may be the engine's own
	dirty    map[*Group]bool            // groups that have changed since their Views were published; true: replan all members
	timed    map[*Group]bool            // groups that change with time: they wait for members, or members are in their slow start
	restarts restarts                   // of the engine's targets
}

// target is a target of the engine that may be a member of groups.
type target struct {
	*observed
	groups []*Group
	probed bool // it has or had probes
}

// tick is the interval at which time-dependent state is checked while there are groups: slow starts,
// doubts, and the health of the engine.
const tick = time.Second

// New returns Groups that contains no groups.
func New(c Config) *Groups {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Reserved == nil {
		c.Reserved = func(string) []string { return nil }
	}
	return &Groups{
		engine: c.Engine, logger: c.Logger, reserved: c.Reserved, resub: wake.New(),
		byName: map[string]*Group{}, targets: map[string]*target{}, doubtful: map[*target]bool{}, dirty: map[*Group]bool{}, timed: map[*Group]bool{}, restarts: newRestarts(),
	}
}

// Apply replaces the groups by those in rules, keyed by name. If it returns an error, which names the
// invalid group, it has changed nothing. A group that remains keeps its state. When Apply returns, the Views
// reflect the engine's current targets.
func (g *Groups) Apply(rules map[string]Rule) error {
	commit, err := g.Plan(rules)
	if err != nil {
		return err
	}
	commit()
	return nil
}

// Plan is Apply in two steps: Plan validates the rules and changes nothing; commit, which cannot fail, applies them.
func (g *Groups) Plan(rules map[string]Rule) (commit func(), err error) {
	if len(rules) > probe.MaxGroups {
		return nil, fmt.Errorf("there are %d groups, at most %d are allowed", len(rules), probe.MaxGroups)
	}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		if err := probe.CheckGroupName(name); err != nil {
			return nil, fmt.Errorf("group %q: %w", name, err)
		}
	}
	return func() {
		g.mu.Lock()
		g.apply(rules, time.Now())
		lines := g.follow(time.Now())
		g.mu.Unlock()
		g.log(lines)
	}, nil
}

func (g *Groups) apply(rules map[string]Rule, now time.Time) {
	for name, group := range g.byName {
		if _, ok := rules[name]; !ok {
			g.remove(group, now)
			delete(g.byName, name)
		}
	}
	for name, rule := range rules {
		group := g.byName[name]
		if group == nil {
			group = newGroup(name, now)
			g.byName[name] = group
		} else if reflect.DeepEqual(group.rule, rule) {
			continue
		}
		g.setRule(group, rule, now)
	}
	switch some := len(g.byName) > 0; {
	case some && g.sub == nil:
		g.sub = g.engine.SubscribeTargets()
	case !some && g.sub != nil:
		g.unsubscribe()
		clear(g.targets)
		clear(g.doubtful)
		g.restarts = newRestarts()
	default:
		return
	}
	g.resub.Set()
}

// unsubscribe stops following the targets. It needs mu.
func (g *Groups) unsubscribe() {
	g.sub.Close()
	g.sub = nil
}

// setRule sets the rule of a group, and selects its members by it.
func (g *Groups) setRule(group *Group, rule Rule, now time.Time) {
	before := group.members.current()
	group.rule, group.members, group.counts, group.acting = rule, draft{}, Counts{}, Counts{}
	group.zeroWeight, group.ejected, group.inRotation = 0, 0, 0
	group.wait.absent, group.wait.joined = 0, 0
	g.mark(group, true)
	for name := range rule.Members.Names() {
		if rule.names(name) && g.targets[name] == nil {
			group.put(absent(name, now), before.get(name), now, g.isolated)
		}
	}
	for name, t := range g.targets {
		is, was := rule.Members.Matches(name, t.labels), slices.Contains(t.groups, group)
		if is {
			group.put(t.observed, before.get(name), now, g.isolated)
		}
		switch {
		case is && !was:
			t.groups = append(t.groups, group)
		case was && !is:
			t.groups = slices.DeleteFunc(t.groups, func(o *Group) bool { return o == group })
		}
	}
	for m := range before.from("") {
		if group.members.get(m.Target) == nil {
			group.lose(m)
		}
	}
}

// remove removes a group. Its last View has Removed set.
func (g *Groups) remove(group *Group, now time.Time) {
	for m := range group.members.current().from("") {
		if t := g.targets[m.Target]; t != nil {
			t.groups = slices.DeleteFunc(t.groups, func(o *Group) bool { return o == group })
		}
	}
	delete(g.dirty, group)
	delete(g.timed, group)
	group.publish(now, g.isolated, true)
}

// Hold keeps the groups unchanged until release is called. Changes to the engine's targets and to the groups that belong
// together, as in a reload, then appear as one change to readers and in the log.
func (g *Groups) Hold() (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held++
	return sync.OnceFunc(func() {
		g.mu.Lock()
		g.held--
		lines := g.follow(time.Now())
		g.mu.Unlock()
		g.log(lines)
	})
}

// Run follows the engine until ctx is done, and returns nil.
func (g *Groups) Run(ctx context.Context) error {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for {
		g.mu.Lock()
		var changed <-chan struct{}
		if g.sub != nil {
			changed = g.sub.Changed()
		}
		lines := g.follow(time.Now())
		g.mu.Unlock()
		g.log(lines)
		select {
		case <-ctx.Done():
			g.close()
			return nil
		case <-changed:
		case <-g.resub:
		case <-ticks.C:
		}
	}
}

func (g *Groups) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sub != nil {
		g.unsubscribe()
	}
}

// Get returns the group with a name, or nil.
func (g *Groups) Get(name string) *Group {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byName[name]
}

// Views returns the current Views of all groups, sorted by name.
func (g *Groups) Views() []*View {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*View, 0, len(g.byName))
	for _, group := range g.byName {
		all = append(all, group.View())
	}
	slices.SortFunc(all, func(a, b *View) int { return cmp.Compare(a.Group, b.Group) })
	return all
}

// follow applies the changes to the engine's targets to the groups, and publishes the groups that have changed. It
// returns the pairs of Views whose differences are to be logged. While the groups are held it does nothing: the engine
// queues the changes. It needs mu.
func (g *Groups) follow(now time.Time) (lines []change) {
	if g.held > 0 || g.sub == nil {
		return nil
	}
	g.look(now)
	for st, ok := g.sub.Poll(); ok; st, ok = g.sub.Poll() {
		g.fold(&st, now)
	}
	for group := range g.timed {
		if group.replan(now, group.slow) {
			g.mark(group, false)
		}
	}
	for group, all := range g.dirty {
		group.replan(now, all)
		before, after := group.publish(now, g.isolated, false)
		if before.Last != after.Last || before.Panicking != after.Panicking {
			lines = append(lines, change{before, after})
		}
		if delete(g.timed, group); !group.wait.over || group.slow {
			g.timed[group] = true
		}
	}
	clear(g.dirty)
	return lines
}

// mark records that a group has changed. If all is true, each of its members may have changed.
func (g *Groups) mark(group *Group, all bool) { g.dirty[group] = g.dirty[group] || all }

// look checks whether the engine is isolated, and whether it still doubts the failures of the targets that are down.
func (g *Groups) look(now time.Time) {
	if isolated := g.engine.Health().Isolated; isolated != g.isolated {
		g.isolated = isolated
		for _, t := range g.targets {
			g.putInAll(t, now)
		}
		for _, group := range g.byName {
			g.mark(group, true)
		}
	}
	for t := range g.doubtful {
		if !t.isDoubted(g.engine) {
			delete(g.doubtful, t)
			t.doubtful = false
			g.putInAll(t, now)
		}
	}
}

// putInAll updates a target in its groups.
func (g *Groups) putInAll(t *target, now time.Time) {
	for _, group := range t.groups {
		group.put(t.observed, group.members.get(t.target), now, g.isolated)
		g.mark(group, false)
	}
}

// fold applies the status of a target to the groups that it belongs to.
func (g *Groups) fold(st *engine.TargetStatus, now time.Time) {
	t := g.targets[st.Target]
	if st.Removed {
		if t != nil {
			g.leave(t, t.groups, now)
			delete(g.targets, st.Target)
			delete(g.doubtful, t)
			g.forgetRestart(st.Target)
		}
		return
	}
	o := observe(st, now)
	g.endRestart(st.Target, st.Instance.ID, o.state)
	if t != nil && t.probed && len(st.Probes) == 0 { // it has lost its probes, and is terminating
		o.address, o.ports = t.address, t.ports
		if o.labels == nil {
			o.labels = t.labels
		}
	}
	switch {
	case t == nil:
		t = &target{groups: g.of(o)}
		g.targets[st.Target] = t
	case !maps.Equal(t.labels, o.labels):
		groups := g.of(o)
		g.leave(t, slices.DeleteFunc(t.groups, func(o *Group) bool { return slices.Contains(groups, o) }), now)
		t.groups = groups
	}
	t.probed = t.probed || len(st.Probes) > 0
	o.doubtful = o.isDoubted(g.engine)
	if before := t.observed; before != nil {
		if before.state == o.state {
			o.since = before.since
			if o.state != probe.GatewayUndecided { // the reason for being down may change with each attempt
				o.reason = before.reason
			}
		}
		if before.equal(o) {
			before.failing = o.failing
			return
		}
	}
	if t.observed = o; o.doubtful {
		g.doubtful[t] = true
	} else {
		delete(g.doubtful, t)
	}
	g.putInAll(t, now)
}

// of returns the groups that select a target.
func (g *Groups) of(o *observed) (groups []*Group) {
	for _, group := range g.byName {
		if group.rule.Members.Matches(o.target, o.labels) {
			groups = append(groups, group)
		}
	}
	return groups
}

// leave removes a target from groups.
func (g *Groups) leave(t *target, groups []*Group, now time.Time) {
	for _, group := range groups {
		group.drop(t.target, now)
		g.mark(group, false)
	}
}

// change is a pair of consecutive Views.
type change struct{ before, after *View }

// maxLogged is the maximum number of members named in a log line.
const maxLogged = 5

// log logs the groups that are no longer ready or are ready again, and those that enter or leave panic. A group that is
// ready from the start is not logged.
func (g *Groups) log(changes []change) {
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.after.Group, b.after.Group) })
	for _, c := range changes {
		v := c.after
		attrs := []any{"group", v.Group, "ready", v.Counts.Serving(), "members", v.Counts.Total(), "min_ready", v.Need}
		switch {
		case v.Last == c.before.Last:
		case v.Last == probe.GatewayDown && isPlanned(v):
			g.logger.Info("group is not ready: its members are stopped", attrs...)
		case v.Last == probe.GatewayDown:
			g.logger.Warn("group is not ready", append(attrs, "down", someDown(v))...)
		case c.before.Last == probe.GatewayDown:
			g.logger.Info("group is ready again", attrs...)
		}
		switch {
		case v.Panicking && !c.before.Panicking:
			g.logger.Warn("group is in panic: too few members are ready, so all are in rotation", append(attrs, "panic", v.Rule.Panic.String())...)
		case c.before.Panicking && !v.Panicking:
			g.logger.Info("group is no longer in panic", attrs...)
		}
	}
}

// isPlanned reports whether some members are not ready, and all of those were stopped as planned.
func isPlanned(v *View) (isPlanned bool) {
	for m := range v.Members() {
		switch {
		case m.State.TakesRequests():
		case !m.Reason.IsPlanned():
			return false
		default:
			isPlanned = true
		}
	}
	return isPlanned
}

// someDown returns the names of members that are down, at most maxLogged of them.
func someDown(v *View) string {
	var names []string
	for m := range v.Members() {
		if m.State != probe.GatewayDown {
			continue
		}
		if len(names) == maxLogged {
			names = append(names, fmt.Sprintf("and %d more", v.Counts[probe.GatewayDown]-maxLogged))
			break
		}
		names = append(names, m.Target)
	}
	return strings.Join(names, ", ")
}
