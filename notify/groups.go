package notify

import (
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// groupSource is the source of groups. It has no events: notices of groups result from comparison.
type groupSource struct {
	groups     *group.Groups
	engine     *engine.Engine
	isEnding   func() bool
	notifierOf func(group string) Notifier

	isDoubted func(Subject) bool

	// The state after the last call of follow, by group. Only the goroutine of Notifiers.follow uses it.
	views     map[string]*group.View
	notifiers map[string]Notifier

	explainedMu sync.Mutex           // guards explained
	explained   map[string]time.Time // when groups that are down were last found to be explained
}

func newGroupSource(c *Config) *groupSource {
	return &groupSource{groups: c.Groups, engine: c.Engine, isEnding: c.IsEnding, notifierOf: c.NotifierOf, isDoubted: c.IsDoubted, views: map[string]*group.View{}, notifiers: map[string]Notifier{}, explained: map[string]time.Time{}}
}

// follow returns the groups whose view has changed, which were removed, or whose notices another engine sends than
// before.
func (s *groupSource) follow(views []*group.View) (changed []Subject) {
	before, tellersBefore := s.views, s.notifiers
	s.views, s.notifiers = make(map[string]*group.View, len(views)), make(map[string]Notifier, len(views))
	for _, v := range views {
		name := v.Group
		s.views[name], s.notifiers[name] = v, s.notifierOf(name)
		if before[name] != v || tellersBefore[name] != s.notifiers[name] {
			changed = append(changed, Subject{KindGroup, name})
		}
	}
	for name := range before {
		if s.views[name] == nil {
			changed = append(changed, Subject{KindGroup, name})
			s.explainedMu.Lock()
			delete(s.explained, name)
			s.explainedMu.Unlock()
		}
	}
	return changed
}

// isHeld implements source. While the engine is isolated, or is stopping its targets, the members of groups do not
// count.
func (s *groupSource) isHeld() bool { return s.engine.Health().Isolated || s.isEnding() }

func (s *groupSource) current(name string) (ev event, exists bool) {
	g := s.groups.Get(name)
	if g == nil {
		return ev, false
	}
	ev = s.event(g.View())
	s.addTeller(&ev)
	return ev, true
}

// addTeller sets the level of an event to others if this engine does not send the notices of its group now.
func (s *groupSource) addTeller(ev *event) {
	if notifier := s.notifierOf(ev.Name); notifier != ThisEngine {
		ev.leave()
		ev.forgotten = notifier == OtherEngine
	}
}

func (s *groupSource) event(v *group.View) event {
	ev := event{Notice: Notice{Subject: Subject{KindGroup, v.Group}, State: v.Last.String(), At: v.Since}}
	ev.Detail = fmt.Sprintf("%d of %d members are ready, %d needed", v.Counts.Serving(), v.Total(), v.Need)
	switch {
	case v.Frozen:
	case v.Last == probe.GatewayDown:
		ev.Severity, ev.level, ev.held = probe.SeverityCritical, firing, s.wasExplained(v) || s.isDoubted(ev.Subject)
	case v.Last != probe.GatewayUndecided:
		ev.level = well
	}
	return ev
}

// wasExplained reports whether the failure of a group is explained, or was until a moment ago: after the cause has
// recovered, members recover one by one.
func (s *groupSource) wasExplained(v *group.View) bool {
	now := time.Now()
	isExplained := s.isExplained(v, now)
	s.explainedMu.Lock()
	defer s.explainedMu.Unlock()
	if isExplained {
		s.explained[v.Group] = now
		return true
	}
	if at, ok := s.explained[v.Group]; ok && now.Sub(at) <= 2*tick {
		return true
	}
	delete(s.explained, v.Group)
	return false
}

// isStopped reports whether a member is unavailable by request. The reason of a member is the reason for which it became
// unavailable.
func (s *groupSource) isStopped(m *group.Member) bool {
	st, isOwn := s.engine.Target(m.Target)
	return m.Reason.IsPlanned() && (!isOwn || st.Cause.Reason.IsPlanned())
}

// maxExplained bounds the members of a group that isExplained checks.
const maxExplained = 1000

// isExplained reports whether a group would have enough members if all members were ready that are not reported: they
// are paused, were stopped, or fail because of a dependency, or may do so. A damped member explains nothing, since
// neither it nor the cause of its flapping is reported. Only some members of a very large group are checked.
func (s *groupSource) isExplained(v *group.View, now time.Time) bool {
	enough, looked := v.Counts.Serving(), 0
	for m := range v.Members() {
		if looked++; looked > maxExplained {
			return false
		}
		if m.State.TakesRequests() || m.ZeroWeight {
			continue
		}
		if reason := s.engine.Admin().Suppressed(m.Target); s.isStopped(m) || reason != "" && reason != probe.ReasonDamped || mayBeExplained(s.engine, m.Target, now) {
			enough++
		}
		if enough >= v.Need {
			return true
		}
	}
	return false
}

func (s *groupSource) troubled() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, v := range s.groups.Views() {
			if v.Last == probe.GatewayDown && !yield(v.Group) {
				return
			}
		}
	}
}
