package engine

import (
	"cmp"
	"container/list"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

// registry has the targets and their probes, by name.
type registry struct {
	mu       sync.RWMutex // guards all below, and target.slots
	targets  map[string]*target
	byName   index // same targets, sorted by name
	probes   int   // number of probes
	idle     idleInstances
	states   targetStates
	labels   map[string]map[string]string // by name, for targets without probes: see Admin.Label
	dampings map[string]*damping          // by name; the target may not exist yet
	pauses   map[string]*Pause            // by name; the target may not exist yet
}

func newRegistry() *registry {
	return &registry{
		targets: map[string]*target{}, labels: map[string]map[string]string{}, dampings: map[string]*damping{}, pauses: map[string]*Pause{},
		idle:   idleInstances{byName: map[string]*list.Element{}},
		states: targetStates{since: map[*target]int64{}, restated: map[*target]restated{}, explained: map[*target]string{}},
	}
}

// target is a target that has probes, or whose instance a driver has reported.
type target struct {
	name  string
	slots []*slot  // sorted; guarded by registry.mu; replaced rather than modified, so a copy stays valid
	only  [1]*slot // initial backing array of slots: most targets have one probe, and need no other memory

	gauge TargetGauge // summary of the target's instance and probes; written with registry.mu held
	since uint32      // when its state began, in seconds since 1970; guarded by scheduler.mu

	// instance is nil until the first Report. The scheduler replaces the pointer, and never modifies the instance.
	instance atomic.Pointer[instance]
}

// instance is a compact probe.Instance with additional state, such as whether it has started.
type instance struct {
	id          string
	since       int64 // 0 for the zero time
	restarts    int32
	phase       probe.Phase
	managed     bool
	terminating bool
	started     bool  // all startup probes have passed
	kept        bool  // the target has lost its probes since the last Report: started and ready are kept
	ready       bool  // if kept is set: the target was ready
	restored    bool  // known only from a Memory, not reported
	retained    bool  // the target remains although there is no instance
	decided     bool  // for an earlier instance, it was known whether the target was ready
	note        *note // nil if it is empty
}

// note has the details that drivers report for few targets.
type note struct {
	reason probe.Reason
	detail string
	exit   probe.Exit

	address string            // overrides the target's, unless it is empty
	ports   map[string]uint16 // overrides the target's, unless it is empty
}

// noNote is the empty note, which most targets have.
var noNote note

func noteOf(in probe.Instance) note {
	return note{in.Reason, in.Detail, in.LastExit, in.Address, in.Ports}
}

// equal reports whether two notes are equal; nil equals an empty note.
func (n *note) equal(other *note) bool {
	n, other = cmp.Or(n, &noNote), cmp.Or(other, &noNote)
	return n.reason == other.reason && n.detail == other.detail && n.exit == other.exit && n.address == other.address && maps.Equal(n.ports, other.ports)
}

func newInstance(in probe.Instance, c *clock.Clock) *instance {
	i := &instance{
		id: in.ID, since: c.At(in.Since), restarts: in.Restarts,
		phase: in.Phase, managed: in.Managed, terminating: in.Terminating, retained: in.Retained,
	}
	if n := noteOf(in); !n.equal(nil) {
		i.note = &n
	}
	return i
}

// isReport reports whether i equals the reported instance in, so that reporting in again changes nothing.
func (i *instance) isReport(in probe.Instance, c *clock.Clock) bool {
	if i.kept || i.id != in.ID || i.phase != in.Phase || i.since != c.At(in.Since) {
		return false
	}
	n := noteOf(in)
	return n.equal(i.note) && i.restarts == in.Restarts && i.managed == in.Managed && i.terminating == in.Terminating && i.retained == in.Retained
}

// endpoint returns the address and ports of the instance, given those of its target.
func (i *instance) endpoint(address string, ports map[string]uint16) (string, map[string]uint16) {
	if i.note == nil {
		return address, ports
	}
	if len(i.note.ports) > 0 {
		ports = i.note.ports
	}
	return cmp.Or(i.note.address, address), ports
}

// hasStarted reports whether the instance runs and has started.
func (i *instance) hasStarted() bool { return i.phase == probe.Running && i.started }

// hasStartedBare reports whether the instance of a target without probes has started. That is so if it runs. However, an instance
// that lost its probes, or is terminating, counts as started only if it had started before.
func (i *instance) hasStartedBare() bool {
	if i.kept || i.terminating {
		return i.hasStarted()
	}
	return i.phase == probe.Running
}

// isOver reports whether there is no instance, and no announced one.
func (i *instance) isOver() bool { return i.phase == probe.Absent || i.phase == probe.Gone }

// hasTarget reports whether the target exists even without probes, because a driver has it.
func (i *instance) hasTarget() bool { return i.managed || i.retained }

// noInstance is the instance of a target before the first Report.
var noInstance instance

// isReported reports whether a driver has reported the target's instance.
func (t *target) isReported() bool {
	i := t.instance.Load()
	return i != nil && !i.restored
}

// current returns the target's instance. The caller must not modify it.
func (t *target) current() *instance {
	if i := t.instance.Load(); i != nil {
		return i
	}
	return &noInstance
}

// public returns an instance of the target in the form in which drivers report it.
func (t *target) public(i *instance, c *clock.Clock) probe.Instance {
	in := probe.Instance{
		Target: t.name, ID: i.id, Phase: i.phase, Managed: i.managed, Terminating: i.terminating, Retained: i.retained, Restarts: i.restarts,
		Since: c.Time(i.since),
	}
	if i.note != nil {
		in.Reason, in.Detail, in.LastExit, in.Address, in.Ports = i.note.reason, i.note.detail, i.note.exit, i.note.address, i.note.ports
	}
	return in
}

// probe returns a probe, or nil.
func (r *registry) probe(id probe.ID) *slot {
	r.mu.RLock()
	defer r.mu.RUnlock()
	t := r.targets[id.Target]
	if t == nil {
		return nil
	}
	s, _ := t.find(id)
	return s
}

// find returns a probe of the target and its index. If there is no such probe, it returns nil and the index at which to insert
// it.
func (t *target) find(id probe.ID) (s *slot, at int) {
	if len(t.slots) == 1 && t.slots[0].kind == id.Kind && t.slots[0].name == id.Name {
		return t.slots[0], 0
	}
	at, found := slices.BinarySearchFunc(t.slots, id, func(s *slot, id probe.ID) int {
		return cmp.Or(cmp.Compare(s.kind, id.Kind), strings.Compare(s.name, id.Name))
	})
	if found {
		s = t.slots[at]
	}
	return s, at
}

// target returns a target and its probes, or nil.
func (r *registry) target(name string) (*target, []*slot) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	t := r.targets[name]
	if t == nil {
		return nil, nil
	}
	return t, t.slots
}

// probesOf returns the probes of a target.
func (r *registry) probesOf(t *target) []*slot {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return t.slots
}

// startupPassed reports whether an instance runs and all startup probes of its target have passed. Without probes it returns
// false: the instance may have been reported before its probes were applied.
func (r *registry) startupPassed(t *target, in *instance) bool {
	slots := r.probesOf(t)
	if in.phase != probe.Running || len(slots) == 0 {
		return false
	}
	for _, s := range slots {
		if s.kind == probe.Startup && !s.hasPassed(in.id) {
			return false
		}
	}
	return true
}

// count returns the number of probes.
func (r *registry) count() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.probes
}

// listed is a target and its probes.
type listed struct {
	target *target
	slots  []*slot
}

// walkChunk is the number of targets that a walk reads each time it holds the lock.
const walkChunk = 256

// walk yields the targets whose names sort after the given name, sorted by name, until ctx is done. Targets that are added or
// removed during the walk may or may not be yielded. walk holds no lock while it yields.
func (r *registry) walk(ctx context.Context, after string) iter.Seq[listed] {
	return r.walkIndex(ctx, &r.byName, after)
}

// walkIndex is walk over an index of r.
func (r *registry) walkIndex(ctx context.Context, x *index, after string) iter.Seq[listed] {
	return func(yield func(listed) bool) {
		for list := make([]listed, 0, walkChunk); ctx.Err() == nil; {
			if list = r.next(x, list, after); len(list) == 0 {
				return
			}
			for _, t := range list {
				if !yield(t) {
					return
				}
			}
			after = list[len(list)-1].target.name
		}
	}
}

// next replaces the content of list by the next targets of an index whose names sort after the given name, up to the capacity of
// list.
func (r *registry) next(x *index, list []listed, after string) []listed {
	r.mu.RLock()
	defer r.mu.RUnlock()
	list = list[:0]
	for p := x.after(after); len(list) < cap(list); {
		targets := x.chunkFrom(&p)
		if targets == nil {
			break
		}
		for _, t := range targets[:min(len(targets), cap(list)-len(list))] {
			list = append(list, listed{t, t.slots})
		}
	}
	return list
}

// countAfter returns the number of targets whose names sort after the given name.
func (r *registry) countAfter(name string) int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byName.countFrom(r.byName.after(name))
}

// insert returns the target with the given name. If necessary it adds the target, with its idle instance. It needs mu.
func (r *registry) insert(name string) *target {
	t := r.targets[name]
	if t == nil {
		t = &target{name: name}
		t.instance.Store(r.idle.take(name))
		r.targets[name] = t
		r.byName.insert(t)
		r.states.count[probe.StateAbsent]++
	}
	return t
}

// delete removes a target. It needs mu.
func (r *registry) delete(name string) {
	t := r.targets[name]
	r.states.remove(t)
	t.gauge.set(summary{})
	delete(r.targets, name)
	delete(r.labels, name)
	r.byName.remove(name)
}

// label sets the labels of a target for while it has no probes, and reports whether the labels of an existing target have
// changed.
func (r *registry) label(name string, labels map[string]string) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if maps.Equal(r.labels[name], labels) {
		return false
	}
	if r.labels[name] = labels; len(labels) == 0 {
		delete(r.labels, name)
	}
	t := r.targets[name]
	return t != nil && len(t.slots) == 0
}

// labelsOf returns the labels of a target with the given probes.
func (r *registry) labelsOf(t *target, slots []*slot) map[string]string {
	if n := len(slots); n > 0 {
		return slots[n-1].spec.Load().target.Labels
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.labels[t.name]
}

// add adds a probe, with its memory if there is one, and reports whether it is the first probe of its target.
func (r *registry) add(s *slot, id probe.ID, m *Memory, c *clock.Clock) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probes++
	r.idle.most = max(r.idle.most, r.probes)
	t := r.insert(id.Target)
	s.target = t
	if m != nil {
		t.restore(m, c)
	}
	if first = len(t.slots) == 0; first && t.only[0] == nil {
		t.only[0] = s
		t.slots = t.only[:]
		return true
	}
	_, at := t.find(id)
	t.slots = slices.Insert(slices.Clone(t.slots), at, s)
	return first
}

// remove removes a probe. If that was the last probe of its target, and no driver retains the target, remove also removes the
// target and returns true. The instance is kept in case the target gets probes again.
func (r *registry) remove(s *slot) (target bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probes--
	t := s.target
	t.slots = slices.DeleteFunc(slices.Clone(t.slots), func(o *slot) bool { return o == s })
	if in := t.current(); len(t.slots) == 0 && !in.hasTarget() {
		r.delete(t.name)
		if !in.isOver() {
			r.idle.keep(t.name, in)
		}
		return true
	}
	return false
}

// reported returns the target of a reported instance, and whether the target is new. It adds the target if necessary. If the
// instance is over and the target has no probes, it removes the target and returns nil.
func (r *registry) reported(in probe.Instance) (t *target, isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	isNew = r.targets[in.Target] == nil
	t = r.insert(in.Target)
	if over := in.Phase == probe.Absent || in.Phase == probe.Gone && !in.Retained; over && len(t.slots) == 0 {
		r.delete(in.Target)
		return nil, isNew
	}
	return t, isNew
}

// hasReport reports whether a target exists and its instance equals the reported one.
func (r *registry) hasReport(in probe.Instance, c *clock.Clock) bool {
	r.mu.RLock()
	t := r.targets[in.Target]
	r.mu.RUnlock()
	return t != nil && t.isReported() && t.current().isReport(in, c)
}

// has reports whether a target still exists.
func (r *registry) has(t *target) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.targets[t.name] == t
}
