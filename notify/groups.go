package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// maxGroupTransitions bounds the transitions of one group that are remembered.
const maxGroupTransitions = 32

// groupTransition is that a group has come to have enough members that are ready, or too few.
type groupTransition struct {
	Group  string    `json:"-"`
	Seq    uint64    `json:"seq"`
	At     time.Time `json:"at"`
	Down   bool      `json:"down"`
	State  string    `json:"state"`
	Detail string    `json:"detail"`
}

// groupCount says which of the transitions are those of a group.
type groupCount struct {
	n    int
	down bool // the last of them
}

// groupSource is the source of groups, with their history: groups have none of their own.
type groupSource struct {
	groups   *group.Groups
	engine   *engine.Engine
	changed  func(key string)
	isEnding func() bool
	tellerOf func(group string) Teller

	pastMu sync.Mutex            // guards all below
	past   []groupTransition     // sorted by Seq
	of     map[string]groupCount // by group, of past
	last   uint64                // the greatest Seq so far

	tellers   map[string]Teller    // by group, as they were last
	explained map[string]time.Time // when groups were found to be down for a reason that explains it
}

func newGroupSource(c *Config) *groupSource {
	return &groupSource{groups: c.Groups, engine: c.Engine, changed: c.Changed, isEnding: c.IsEnding, tellerOf: c.TellerOf, tellers: map[string]Teller{}, of: map[string]groupCount{}, explained: map[string]time.Time{}}
}

// follow remembers which groups have got into another state, and forgets those that were removed. It
// returns both, and the groups about which another engine tells than before.
func (s *groupSource) follow(views []*group.View, now time.Time) (changed []Subject) {
	if s.isHeld() {
		return nil
	}
	names := s.forgetOthers(views)
	for _, v := range views {
		if s.add(v, now) {
			names = append(names, v.Group)
		}
	}
	for _, name := range names {
		s.changed(KeyGroup + name)
		changed = append(changed, Subject{KindGroup, name})
	}
	for _, v := range views {
		if s.setTeller(v.Group, s.tellerOf(v.Group)) {
			changed = append(changed, Subject{KindGroup, v.Group})
		}
	}
	return changed
}

// setTeller notes which engine tells about a group, and reports whether it was another one.
func (s *groupSource) setTeller(group string, now Teller) (changed bool) {
	s.pastMu.Lock()
	defer s.pastMu.Unlock()
	before := s.tellers[group]
	s.tellers[group] = now
	return now != before
}

// forgetOthers forgets the groups that have no view, and returns those of them that had a history.
func (s *groupSource) forgetOthers(views []*group.View) (removed []string) {
	exist := make(map[string]bool, len(views))
	for _, v := range views {
		exist[v.Group] = true
	}
	s.pastMu.Lock()
	defer s.pastMu.Unlock()
	for name := range s.of {
		if !exist[name] {
			removed = append(removed, name)
			delete(s.of, name)
		}
	}
	if len(removed) > 0 {
		s.past = slices.DeleteFunc(s.past, func(t groupTransition) bool { return !exist[t.Group] })
	}
	maps.DeleteFunc(s.explained, func(name string, _ time.Time) bool { return !exist[name] })
	maps.DeleteFunc(s.tellers, func(name string, _ Teller) bool { return !exist[name] })
	return removed
}

// add adds the state of a group to its history, and reports whether that is another one than the
// last. That a group is well is not remembered unless it was not.
func (s *groupSource) add(v *group.View, now time.Time) bool {
	ev := s.event(v)
	if ev.level == keep {
		return false
	}
	s.pastMu.Lock()
	defer s.pastMu.Unlock()
	of, down := s.of[v.Group], ev.level == firing
	if of.down == down {
		return false
	}
	if of.n == maxGroupTransitions {
		first := slices.IndexFunc(s.past, func(t groupTransition) bool { return t.Group == v.Group })
		s.past = slices.Delete(s.past, first, first+1)
		of.n--
	}
	s.last++
	s.past = append(s.past, groupTransition{Group: v.Group, Seq: s.last, At: now, Down: down, State: ev.State, Detail: ev.Detail})
	s.of[v.Group] = groupCount{of.n + 1, down}
	return true
}

// wait waits until ctx is done, a group has changed since its view, woken can be received from, or ticks: then it
// returns true.
func (s *groupSource) wait(ctx context.Context, views []*group.View, woken <-chan struct{}, ticks <-chan time.Time) (ticked bool) {
	cases := []reflect.SelectCase{
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ticks)},
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(woken)},
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())},
	}
	for _, v := range views {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(v.Replaced())})
	}
	chosen, _, _ := reflect.Select(cases)
	return chosen == 0
}

// isHeld implements source. While the engine is cut off, or ends and stops targets, the members of groups do not
// count.
func (s *groupSource) isHeld() bool { return s.engine.Health().Isolated || s.isEnding() }

func (s *groupSource) after(seq uint64, limit int) (events []event, last uint64) {
	s.pastMu.Lock()
	defer s.pastMu.Unlock()
	i, _ := slices.BinarySearchFunc(s.past, seq+1, func(t groupTransition, seq uint64) int { return cmp.Compare(t.Seq, seq) })
	for ; i < len(s.past); i++ {
		if len(events) == limit {
			break
		}
		t := &s.past[i]
		ev := event{seq: t.Seq, level: well, Notice: Notice{Subject: Subject{KindGroup, t.Group}, State: t.State, Detail: t.Detail, At: t.At}}
		if t.Down {
			ev.level, ev.Severity = firing, probe.SeverityCritical
		}
		s.addTeller(&ev)
		events = append(events, ev)
	}
	if i < len(s.past) && len(events) > 0 {
		return events, events[len(events)-1].seq
	}
	return events, max(seq, s.last)
}

func (s *groupSource) current(name string) (ev event, exists bool) {
	g := s.groups.Get(name)
	if g == nil {
		return ev, false
	}
	ev = s.event(g.View())
	s.addTeller(&ev)
	return ev, true
}

// addTeller makes an event one of others if this engine does not tell about its group now.
func (s *groupSource) addTeller(ev *event) {
	if teller := s.tellerOf(ev.Name); teller != ThisEngine {
		ev.level, ev.isWell, ev.forgotten = others, ev.level == well, teller == OtherEngine
	}
}

func (s *groupSource) event(v *group.View) event {
	ev := event{Notice: Notice{Subject: Subject{KindGroup, v.Group}, State: v.Last.String(), At: v.Since}}
	ev.Detail = fmt.Sprintf("%d of %d members are ready, %d needed", v.Counts[group.Ready]+v.Counts[group.Degraded], v.Total(), v.Need)
	switch {
	case v.Frozen:
	case v.Last == group.Down:
		if ev.Severity = probe.SeverityCritical; !s.wasExplained(v) {
			ev.level = firing
		}
	case v.Last != group.Undecided:
		ev.level = well
	}
	return ev
}

// wasExplained reports whether a group that is down is explained, or was until a moment ago: members
// recover with what explains their failures, but not all at once.
func (s *groupSource) wasExplained(v *group.View) bool {
	now := time.Now()
	isExplained := s.isExplained(v, now)
	s.pastMu.Lock()
	defer s.pastMu.Unlock()
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

// maxExplained bounds the members of a group that isExplained looks at.
const maxExplained = 1000

// isExplained reports whether a group would have enough members if those were ready that nobody is
// told about: they are paused, or fail because of a target that they depend on, or may do so. A damped member explains
// nothing: nobody is told of it, nor of what makes it flap. It looks at some members of a
// very large group only.
func (s *groupSource) isExplained(v *group.View, now time.Time) bool {
	enough, looked := v.Counts[group.Ready]+v.Counts[group.Degraded], 0
	for m := range v.Members() {
		if looked++; looked > maxExplained {
			return false
		}
		if m.State == group.Ready || m.State == group.Degraded || m.ZeroWeight {
			continue
		}
		if reason := s.engine.Admin().Suppressed(m.Target); reason != "" && reason != probe.ReasonDamped || mayBeExplained(s.engine, m.Target, now) {
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
			if v.Last == group.Down && !yield(v.Group) {
				return
			}
		}
	}
}

// value returns the history of a group as JSON, and whether it has one.
func (s *groupSource) value(name string) ([]byte, bool) {
	s.pastMu.Lock()
	defer s.pastMu.Unlock()
	var of []groupTransition
	for _, t := range s.past {
		if t.Group == name {
			of = append(of, t)
		}
	}
	text, _ := json.Marshal(of) // has no error
	return text, len(of) > 0
}

// names returns the groups that have a history.
func (s *groupSource) names() []string {
	s.pastMu.Lock()
	defer s.pastMu.Unlock()
	return slices.Collect(maps.Keys(s.of))
}

// restore adds the history of a group that value has returned to an earlier engine.
func (s *groupSource) restore(name string, text []byte) error {
	var of []groupTransition
	if err := json.Unmarshal(text, &of); err != nil {
		return err
	}
	s.pastMu.Lock()
	defer s.pastMu.Unlock()
	for _, t := range of[max(0, len(of)-maxGroupTransitions):] {
		t.Group = name
		s.past = append(s.past, t)
		s.last = max(s.last, t.Seq)
	}
	slices.SortStableFunc(s.past, func(a, b groupTransition) int { return cmp.Compare(a.Seq, b.Seq) })
	if n := len(of); n > 0 {
		s.of[name] = groupCount{min(n, maxGroupTransitions), of[n-1].Down}
	}
	return nil
}

// skip makes the numbers of further transitions greater than one.
func (s *groupSource) skip(seq uint64) {
	s.pastMu.Lock()
	defer s.pastMu.Unlock()
	s.last = max(s.last, seq)
}
