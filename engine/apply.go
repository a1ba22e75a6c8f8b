package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// change is one difference between what exists and what is desired.
type change struct {
	what    changeKind
	id      probe.ID
	slot    *slot  // nil to add a probe
	spec    *spec  // what it shall have; nil to remove a probe
	before  *spec  // what it had; nil to add a probe
	address string // of the target
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
// Probes may share a handler. Each probe of a probe.StatefulHandler gets one of its
// own from ForProbe when it is added or replaced. A handler that is an io.Closer is
// closed when the last probe that has it is removed or replaced, and when Run ends;
// a StatefulHandler itself is not closed, only the handlers made from it.
func (e *Engine) Apply(set probe.Set) (Changes, error) {
	e.applying.Lock()
	defer e.applying.Unlock()
	defer e.specs.sweep()
	changes, done, err := e.diff(set)
	if err != nil {
		return Changes{}, err
	}
	separate(changes)
	for chunk := range slices.Chunk(changes, applyChunk) {
		e.changeAll(chunk)
	}
	e.follow(changes)
	return done, nil
}

// diff checks set and compares it with what exists. It needs no lock but
// applying: only Apply writes what it reads.
func (e *Engine) diff(set probe.Set) ([]change, Changes, error) {
	var d diff
	batch := make([]wish, 0, min(len(set), wishChunk))
	for id, p := range set {
		if batch = append(batch, wish{id: id, probe: p}); len(batch) < wishChunk {
			continue
		}
		if err := e.compareAll(&d, batch); err != nil {
			return nil, Changes{}, err
		}
		batch = batch[:0]
	}
	if err := e.compareAll(&d, batch); err != nil {
		return nil, Changes{}, err
	}
	if d.n.Removed = e.board.probes - d.n.Kept - d.n.Adjusted - d.n.Replaced; d.n.Removed > 0 {
		d.changes = append(d.changes, e.unwanted(set)...)
	}
	slices.SortFunc(d.changes, func(a, b change) int { return a.id.Compare(b.id) })
	return d.changes, d.n, nil
}

// diff is what an Apply is about to do.
type diff struct {
	changes []change
	n       Changes
}

// wish is one probe that shall exist, and what there is of it.
type wish struct {
	id     probe.ID
	probe  probe.Probe
	target *target
	slot   *slot
}

// wishChunk is how many wishes are looked up at once. Each lookup waits for memory
// several times; those of a chunk wait side by side.
const wishChunk = 128

// compareAll compares wishes with what exists.
func (e *Engine) compareAll(d *diff, wishes []wish) error {
	for i := range wishes {
		wishes[i].target = e.board.targets[wishes[i].id.Target]
	}
	for i := range wishes {
		if w := &wishes[i]; w.target != nil {
			w.slot, _ = w.target.slot(w.id)
		}
	}
	for i := range wishes {
		if err := e.compare(d, &wishes[i]); err != nil {
			return fmt.Errorf("probe %q: %w", wishes[i].id, err)
		}
	}
	return nil
}

// compare notes what has to be done for a wish.
func (e *Engine) compare(d *diff, w *wish) error {
	s, p := w.slot, &w.probe
	if err := e.complete(w.id, p, s == nil); err != nil {
		return err
	}
	c := change{id: w.id, slot: s, address: p.Target.Address}
	switch {
	case s == nil:
		d.n.Added++
		c.what = added
	case !s.spec.sameHandler(p) || !s.spec.sameTarget(p) || s.address != c.address:
		d.n.Replaced++
		c.what, c.before = replaced, s.spec
	case s.spec.rule != p.Rule:
		d.n.Adjusted++
		p.Handler = s.spec.configured
		c.what, c.before = adjusted, s.spec
	default:
		d.n.Kept++
		return nil
	}
	c.spec = e.specs.of(p)
	d.changes = append(d.changes, c)
	return nil
}

// separate gives each probe of a StatefulHandler a handler of its own. A probe that
// is only adjusted keeps the one that it has.
func separate(changes []change) {
	for _, c := range changes {
		switch {
		case c.spec == nil || c.spec.handler != nil:
		case c.what == adjusted:
			c.spec.use(c.before.handler)
		default:
			c.spec.use(c.spec.configured.(probe.StatefulHandler).ForProbe())
		}
	}
}

// unwanted returns the removal of every probe that is not in set.
func (e *Engine) unwanted(set probe.Set) []change {
	var changes []change
	for _, t := range e.board.targets {
		for _, s := range t.slots {
			if _, ok := set[s.id()]; !ok {
				changes = append(changes, change{what: removed, id: s.id(), slot: s, before: s.spec})
			}
		}
	}
	return changes
}

// follow counts who has which spec now, and closes the handlers that nobody has
// any more.
func (e *Engine) follow(changes []change) {
	for _, c := range changes {
		if c.spec == nil {
			continue
		}
		if c.spec.users++; c.spec.users == 1 {
			e.closers.join(c.spec.handler)
		}
	}
	for _, c := range changes {
		if c.before == nil {
			continue
		}
		if c.before.users--; c.before.users == 0 {
			e.closers.leave(c.before.handler)
		}
	}
}

// complete fills in what p leaves out, and checks it; its ID only if it is new.
func (e *Engine) complete(id probe.ID, p *probe.Probe, isNew bool) error {
	if isNew {
		if err := id.Check(); err != nil {
			return err
		}
	}
	if p.Rule.Kind != 0 && p.Rule.Kind != id.Kind {
		return fmt.Errorf("rule.kind is %v", p.Rule.Kind)
	}
	if p.Target.Name != "" && p.Target.Name != id.Target {
		return fmt.Errorf("target.name is %q", p.Target.Name)
	}
	if p.Handler == nil {
		return errors.New("handler must not be nil")
	}
	p.Rule.Kind, p.Target.Name = id.Kind, id.Target
	p.Rule = p.Rule.WithDefaults()
	if p.Rule.Compatibility == probe.Mended {
		p.Rule.Compatibility = e.conf.Compatibility
	}
	return p.Rule.Check()
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
		return e.add(c)
	case removed:
		e.remove(c.slot)
	case adjusted:
		e.adjust(c.slot, c.spec)
	case replaced:
		e.replace(c.slot, c.spec, c.address)
	}
	return c.slot.target
}

func (e *Engine) add(c change) *target {
	s := &slot{
		key: e.newKey(), kind: c.id.Kind, name: c.id.Name,
		spec: c.spec, address: c.address, record: record{rest: verdict.NoInstance},
	}
	if c.spec.rule.Compatibility == probe.Kubelet {
		s.took = newHistogram()
	}
	e.slots[s.key] = s
	e.post(s, c.id)
	e.markAll(c.id)
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
func (e *Engine) post(s *slot, id probe.ID) {
	e.board.Lock()
	defer e.board.Unlock()
	t := e.board.target(id.Target)
	_, at := t.slot(id)
	t.insert(at, s)
	s.target = t
	e.board.probes++
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
	e.markAll(s.id())
}

// unpost takes a slot off the board, and its target too if nobody drives it.
func (e *Engine) unpost(s *slot) {
	e.board.Lock()
	defer e.board.Unlock()
	t := s.target
	t.slots = slices.DeleteFunc(slices.Clone(t.slots), func(o *slot) bool { return o == s })
	e.board.probes--
	if len(t.slots) == 0 && !t.instance.managed {
		delete(e.board.targets, t.name)
	}
}

// adjust gives a probe another rule.
func (e *Engine) adjust(s *slot, sp *spec) {
	moved := s.spec.rule.Period != sp.rule.Period
	s.mu.Lock()
	s.spec = sp
	s.mu.Unlock()
	now := e.clock.now()
	if s.flight != nil {
		s.flight.next = s.nextTurn(now)
	} else if _, scheduled := e.heap.Due(s.key); scheduled && moved && s.record.rest == verdict.NotResting {
		e.schedule(s, s.turn(now))
	}
}

// replace gives a probe another handler or target.
func (e *Engine) replace(s *slot, sp *spec, address string) {
	e.drop(s)
	s.mu.Lock()
	s.spec, s.address = sp, address
	s.record.state = verdict.Renew(s.kind, s.record.state)
	s.record.result, s.record.resultAt, s.record.rest = nil, 0, verdict.NoInstance
	s.mu.Unlock()
	e.unschedule(s)
}
