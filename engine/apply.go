package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// change is one difference between what exists and what is desired.
type change struct {
	what   changeKind
	id     probe.ID
	slot   *slot         // nil to add a probe
	probe  probe.Probe   // what it shall be
	before probe.Handler // what it was; nil to add a probe
}

type changeKind uint8

const (
	added changeKind = iota
	adjusted
	replaced
	removed
)

// applyChunk is how many changes are made before others may have the lock.
const applyChunk = 1024

// Apply makes the probes those of set: all of it, or, with an error that names
// the probe and the field, nothing of it. The engine does not keep set.
//
// A probe that has not changed does not notice: it keeps its state, its phase and
// an attempt under way. One with another rule keeps its state and its streak. One
// with another handler or target judges afresh, and what it had published stands
// until it has (see verdict.Renew); the answer of its attempt under way is
// dropped, as is a removed probe's.
//
// A handler that is an io.Closer is closed when the last probe that has it is
// gone, and when Run ends.
func (e *Engine) Apply(set probe.Set) (Changes, error) {
	e.applying.Lock()
	defer e.applying.Unlock()
	changes, done, err := e.diff(set)
	if err != nil {
		return Changes{}, err
	}
	for chunk := range slices.Chunk(changes, applyChunk) {
		e.changeAll(chunk)
	}
	e.handlers.follow(changes)
	return done, nil
}

// diff checks set and compares it with what exists. It needs no lock but
// applying: only Apply writes what it reads.
func (e *Engine) diff(set probe.Set) ([]change, Changes, error) {
	var changes []change
	var n Changes
	for id, p := range set {
		p, err := e.complete(id, p)
		if err != nil {
			return nil, Changes{}, err
		}
		s := e.board.probes[id]
		switch {
		case s == nil:
			n.Added++
			changes = append(changes, change{added, id, nil, p, nil})
		case !sameHandler(s.probe, p) || !s.probe.Target.Equal(p.Target):
			n.Replaced++
			changes = append(changes, change{replaced, id, s, p, s.probe.Handler})
		case s.probe.Rule != p.Rule:
			n.Adjusted++
			p.Handler = s.probe.Handler
			changes = append(changes, change{adjusted, id, s, p, s.probe.Handler})
		default:
			n.Kept++
		}
	}
	for id, s := range e.board.probes {
		if _, ok := set[id]; !ok {
			n.Removed++
			changes = append(changes, change{removed, id, s, s.probe, s.probe.Handler})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return a.id.Compare(b.id) })
	return changes, n, nil
}

// complete fills in what p leaves out, and checks it.
func (e *Engine) complete(id probe.ID, p probe.Probe) (probe.Probe, error) {
	if err := id.Check(); err != nil {
		return p, fmt.Errorf("probe %q: %w", id, err)
	}
	if p.Rule.Kind != 0 && p.Rule.Kind != id.Kind {
		return p, fmt.Errorf("probe %q: rule.kind is %v", id, p.Rule.Kind)
	}
	if p.Target.Name != "" && p.Target.Name != id.Target {
		return p, fmt.Errorf("probe %q: target.name is %q", id, p.Target.Name)
	}
	if p.Handler == nil {
		return p, fmt.Errorf("probe %q: handler must not be nil", id)
	}
	p.Rule.Kind, p.Target.Name = id.Kind, id.Target
	p.Rule = p.Rule.WithDefaults()
	if p.Rule.Compatibility == probe.Mended {
		p.Rule.Compatibility = e.conf.Compatibility
	}
	if err := p.Rule.Check(); err != nil {
		return p, fmt.Errorf("probe %q: %w", id, err)
	}
	return p, nil
}

// changeAll makes changes, which are sorted, and looks at each target once its
// probes are what they shall be.
func (e *Engine) changeAll(changes []change) {
	e.mu.Lock()
	defer e.unlock()
	for i, c := range changes {
		t := e.change(c)
		if i+1 == len(changes) || changes[i+1].id.Target != c.id.Target {
			t.start()
			e.lookAll(t)
		}
	}
	e.rouse()
}

// change makes one change and returns the target it is about.
func (e *Engine) change(c change) *target {
	switch c.what {
	case added:
		return e.add(c.id, c.probe)
	case removed:
		e.remove(c.slot)
	case adjusted:
		e.adjust(c.slot, c.probe)
	case replaced:
		e.replace(c.slot, c.probe)
	}
	return c.slot.target
}

func (e *Engine) add(id probe.ID, p probe.Probe) *target {
	s := &slot{id: id, key: e.newKey(), probe: p, record: record{rest: verdict.NoInstance}}
	if p.Rule.Compatibility == probe.Kubelet {
		s.took = newHistogram()
	}
	e.slots[s.key] = s
	e.post(s)
	e.markAll(id)
	return s.target
}

// newKey returns a key of the heap that no slot has.
func (e *Engine) newKey() uint32 {
	if n := len(e.free); n > 0 {
		key := e.free[n-1]
		e.free = e.free[:n-1]
		return key
	}
	e.slots = append(e.slots, nil)
	return uint32(len(e.slots) - 1)
}

// post puts a new slot on the board.
func (e *Engine) post(s *slot) {
	e.board.Lock()
	defer e.board.Unlock()
	t := e.board.target(s.id.Target)
	at, _ := slices.BinarySearchFunc(t.slots, s.id, func(o *slot, id probe.ID) int { return o.id.Compare(id) })
	t.slots = slices.Insert(slices.Clone(t.slots), at, s)
	s.target = t
	e.board.probes[s.id] = s
}

// target returns the record of a target, a new one if there is none.
func (b *board) target(name string) *target {
	t := b.targets[name]
	if t == nil {
		t = &target{name: name}
		b.targets[name] = t
	}
	return t
}

func (e *Engine) remove(s *slot) {
	e.drop(s)
	e.unschedule(s)
	e.slots[s.key] = nil
	e.free = append(e.free, s.key)
	e.unpost(s)
	s.mu.Lock()
	s.removed = true
	if s.gauge != nil {
		s.gauge.set(probe.Undecided)
	}
	s.mu.Unlock()
	e.markAll(s.id)
}

// unpost takes a slot off the board, and its target too if nobody drives it.
func (e *Engine) unpost(s *slot) {
	e.board.Lock()
	defer e.board.Unlock()
	t := s.target
	t.slots = slices.DeleteFunc(slices.Clone(t.slots), func(o *slot) bool { return o == s })
	delete(e.board.probes, s.id)
	if len(t.slots) == 0 && !t.instance.Managed {
		delete(e.board.targets, t.name)
	}
}

// adjust gives a probe another rule.
func (e *Engine) adjust(s *slot, p probe.Probe) {
	moved := s.probe.Rule.Period != p.Rule.Period
	s.mu.Lock()
	s.probe = p
	s.mu.Unlock()
	now := e.clock.now()
	if s.flight != nil {
		s.next = turn(s.id, p.Rule.Period, now+int64(p.Rule.Period)/2)
	} else if _, scheduled := e.heap.Due(s.key); scheduled && moved && s.record.rest == verdict.NotResting {
		e.schedule(s, turn(s.id, p.Rule.Period, now))
	}
}

// replace gives a probe another handler or target.
func (e *Engine) replace(s *slot, p probe.Probe) {
	e.drop(s)
	s.mu.Lock()
	s.probe = p
	s.record.state = verdict.Renew(s.id.Kind, s.record.state)
	s.record.result, s.record.resultAt, s.record.rest = probe.Result{}, time.Time{}, verdict.NoInstance
	s.mu.Unlock()
	e.unschedule(s)
}
