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
	"github.com/sonde-probe/sonde/probe"
)

// MaxGroups is how many groups there can be.
const MaxGroups = 1000

// Engine is the part of *engine.Engine that Groups uses.
type Engine interface {
	SubscribeTargets() *engine.TargetSubscription
}

// Config configures Groups.
type Config struct {
	Engine Engine // required

	// Logger gets a line when a group is no longer ready, at level Warn, and when it is
	// ready again, at level Info; not while it is undecided. Default: no log.
	Logger *slog.Logger
}

// Groups are the groups of an engine's targets. Create them with New, and call Run once.
// The other methods may be called at any time, also before Run, by multiple goroutines.
type Groups struct {
	engine Engine
	logger *slog.Logger
	resub  chan struct{} // capacity 1: sub was replaced

	mu      sync.Mutex // guards all below, and what Group says; the locks of an engine's readers are taken while it is held
	byName  map[string]*Group
	sub     *engine.TargetSubscription // nil while there are no groups
	swept   bool                       // all targets that existed at first are known
	held    int                        // calls of Hold that are not released
	targets map[string]*target         // all of the engine, by name
	dirty   map[*Group]bool            // have changed since their Views were published
}

// target is a target of the engine, which is a member of some groups.
type target struct {
	member *Member // shared by the groups
	groups []*Group
}

// New returns Groups without a group.
func New(c Config) *Groups {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Groups{
		engine: c.Engine, logger: c.Logger, resub: make(chan struct{}, 1),
		byName: map[string]*Group{}, targets: map[string]*target{}, dirty: map[*Group]bool{},
	}
}

// Apply makes the groups those of rules, by name: all of them or, if it returns an error,
// which names the group, none. A group that goes on keeps its state. When Apply returns,
// the Views are those of the engine's present targets.
func (g *Groups) Apply(rules map[string]Rule) error {
	if len(rules) > MaxGroups {
		return fmt.Errorf("there are %d groups, at most %d are allowed", len(rules), MaxGroups)
	}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		if err := probe.CheckGroupName(name); err != nil {
			return fmt.Errorf("group %q: %w", name, err)
		}
	}
	g.mu.Lock()
	g.apply(rules, time.Now())
	lines := g.follow()
	g.mu.Unlock()
	g.log(lines)
	return nil
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
		g.sub, g.swept = g.engine.SubscribeTargets(), false
	case !some && g.sub != nil:
		g.sub.Close()
		g.sub = nil
		clear(g.targets)
	default:
		return
	}
	select {
	case g.resub <- struct{}{}:
	default:
	}
}

// setRule gives a group another rule, and the members that it selects.
func (g *Groups) setRule(group *Group, rule Rule, now time.Time) {
	group.rule, group.members, group.counts = rule, members{}, Counts{}
	g.dirty[group] = true
	for name := range rule.Members.Names() {
		if rule.names(name) && g.targets[name] == nil {
			group.put(&Member{Target: name, Since: now})
		}
	}
	for name, t := range g.targets {
		is, was := rule.Members.Matches(name, t.member.Labels), slices.Contains(t.groups, group)
		if is {
			group.put(t.member)
		}
		switch {
		case is && !was:
			t.groups = append(t.groups, group)
		case was && !is:
			t.groups = slices.DeleteFunc(t.groups, func(o *Group) bool { return o == group })
		}
	}
}

// remove removes a group. Its last View says so.
func (g *Groups) remove(group *Group, now time.Time) {
	for m := range group.members.from("") {
		if t := g.targets[m.Target]; t != nil {
			t.groups = slices.DeleteFunc(t.groups, func(o *Group) bool { return o == group })
		}
	}
	delete(g.dirty, group)
	group.publish(now, true)
}

// Hold keeps the groups as they are until release is called: a change of the engine's
// targets and a change of the groups that go together, such as a reload, become one for
// readers and for the log.
func (g *Groups) Hold() (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held++
	return sync.OnceFunc(func() {
		g.mu.Lock()
		g.held--
		lines := g.follow()
		g.mu.Unlock()
		g.log(lines)
	})
}

// Run follows the engine until ctx is done, and returns nil.
func (g *Groups) Run(ctx context.Context) error {
	for {
		g.mu.Lock()
		var changed <-chan struct{}
		if g.sub != nil {
			changed = g.sub.Changed()
		}
		lines := g.follow()
		g.mu.Unlock()
		g.log(lines)
		select {
		case <-ctx.Done():
			g.close()
			return nil
		case <-changed:
		case <-g.resub:
		}
	}
}

func (g *Groups) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sub != nil {
		g.sub.Close()
	}
}

// Get returns the group of a name, or nil.
func (g *Groups) Get(name string) *Group {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byName[name]
}

// Views returns the present Views of all groups, sorted by name.
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

// follow folds what has happened to the engine's targets into the groups, and publishes
// those that have changed. It returns the pairs of Views whose difference is to be logged.
// While the groups are held it does nothing: the engine keeps what has happened. It needs
// mu.
func (g *Groups) follow() (lines []change) {
	if g.held > 0 || g.sub == nil {
		return nil
	}
	now := time.Now()
	for st, ok := g.sub.Poll(); ok; st, ok = g.sub.Poll() {
		g.fold(&st, now)
	}
	g.swept = true
	for group := range g.dirty {
		before, after := group.publish(now, false)
		if before.Last != after.Last {
			lines = append(lines, change{before, after})
		}
	}
	clear(g.dirty)
	return lines
}

// fold folds the status of a target into the groups that it belongs to.
func (g *Groups) fold(st *engine.TargetStatus, now time.Time) {
	t := g.targets[st.Target]
	if st.Removed {
		if t != nil {
			g.leave(t, t.groups, now)
			delete(g.targets, st.Target)
		}
		return
	}
	m := &Member{Target: st.Target, Address: st.Address, Labels: st.Labels, State: stateOf(st), Since: now}
	switch {
	case t == nil:
		t = &target{member: m, groups: g.of(m)}
		g.targets[st.Target] = t
	case !maps.Equal(t.member.Labels, m.Labels):
		groups := g.of(m)
		g.leave(t, slices.DeleteFunc(t.groups, func(o *Group) bool { return slices.Contains(groups, o) }), now)
		t.groups = groups
	case t.member.State == m.State && t.member.Address == m.Address:
		return
	}
	if t.member.State == m.State {
		m.Since = t.member.Since
	}
	t.member = m
	for _, group := range t.groups {
		group.put(m)
		g.dirty[group] = true
	}
}

// of returns the groups of a target.
func (g *Groups) of(m *Member) (groups []*Group) {
	for _, group := range g.byName {
		if group.rule.Members.Matches(m.Target, m.Labels) {
			groups = append(groups, group)
		}
	}
	return groups
}

// leave makes a target leave groups.
func (g *Groups) leave(t *target, groups []*Group, now time.Time) {
	for _, group := range groups {
		group.drop(t.member.Target, now)
		g.dirty[group] = true
	}
}

// change is a pair of Views, one after the other.
type change struct{ before, after *View }

// maxLogged bounds the members that a log line names.
const maxLogged = 5

// log logs the groups that are no longer ready, and those that are ready again. A group
// that is ready at first has no line.
func (g *Groups) log(changes []change) {
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.after.Group, b.after.Group) })
	for _, c := range changes {
		v := c.after
		attrs := []any{"group", v.Group, "ready", v.Counts[Ready], "members", v.Counts.Total(), "min_ready", v.Need}
		switch {
		case v.Last == Down:
			g.logger.Warn("group is not ready", append(attrs, "down", someDown(v))...)
		case c.before.Last == Down:
			g.logger.Info("group is ready again", attrs...)
		}
	}
}

// someDown names some members that are down.
func someDown(v *View) string {
	var names []string
	for m := range v.Members() {
		if m.State != Down {
			continue
		}
		if len(names) == maxLogged {
			names = append(names, fmt.Sprintf("and %d more", v.Counts[Down]-maxLogged))
			break
		}
		names = append(names, m.Target)
	}
	return strings.Join(names, ", ")
}
