package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sonde-probe/sonde/engine/internal/schedule"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Apply changes the engine's probes to those of set. If it returns an error, it has
// changed nothing. The error joins those of the first ten invalid probes, sorted, with
// the names of the fields. The engine does not keep set.
//
// An unchanged probe keeps its state, its offset and its attempt in flight. A probe
// with another rule keeps its state and its run of equal outcomes. A probe with
// another handler or target starts a new run, and what it had published stands until
// its next verdict (see verdict.Renew); but if the target's address or ports have
// changed, nothing is known about it, and it is undecided (see
// verdict.Relocate). The result of its attempt in flight is dropped, and so is that of
// a removed probe.
//
// A probe is attempted once Report has been called for its target.
//
// Probes may share a handler. Each probe of a probe.StatefulHandler gets one of its
// own from ForProbe when it is added or replaced. A handler that is an io.Closer is
// closed when the last probe that has it is removed or replaced and the attempts that
// it makes have ended, and when Run ends; a StatefulHandler itself is not closed, only
// the handlers made from it.
func (e *Engine) Apply(set probe.Set) (Changes, error) {
	return e.change(func(p *plan) error {
		if err := p.compareSet(set); err != nil {
			return err
		}
		p.removeUnwanted(set)
		return nil
	})
}

// change makes the changes that draw plans, or none if it returns an error.
func (e *Engine) change(draw func(p *plan) error) (Changes, error) {
	e.applyMu.Lock()
	defer e.applyMu.Unlock()
	defer e.specs.sweep()
	p := plan{engine: e}
	if err := draw(&p); err != nil {
		return Changes{}, err
	}
	slices.SortFunc(p.changes, func(a, b change) int { return a.id.Compare(b.id) })
	p.separate()
	p.retain()
	for rest := p.changes; len(rest) > 0; {
		n := chunkOf(rest)
		e.scheduler.apply(rest[:n])
		rest = rest[n:]
	}
	p.release()
	return p.counts, nil
}

// applyChunk is how many changes are made before other goroutines may have the lock.
const applyChunk = 1024

// chunkOf returns how many changes to make at once: applyChunk, and all others of the
// last target.
func chunkOf(changes []change) int {
	n := min(len(changes), applyChunk)
	for n < len(changes) && changes[n].id.Target == changes[n-1].id.Target {
		n++
	}
	return n
}

// change is one difference between what exists and what is desired.
type change struct {
	action  action
	id      probe.ID
	slot    *slot   // nil to add a probe
	spec    *spec   // the new one; nil to remove a probe
	before  *spec   // the old one; nil to add a probe
	address string  // of the target
	memory  *Memory // to go on with; nil without, and unless a probe is added
	moved   bool    // the target's address or ports have changed
}

type action uint8

const (
	added action = iota
	adjusted
	replaced
	removed
)

// plan is what Apply or Change is about to do. It needs Engine.applyMu: only they change
// which probes there are, and their specs and addresses.
type plan struct {
	engine   *Engine
	memories map[probe.ID]Memory
	changes  []change
	counts   Changes
	invalid  invalidProbes
}

// wish is one desired probe, and its slot if it exists already.
type wish struct {
	id    probe.ID
	probe probe.Probe
	slot  *slot
}

// compareChunk is how many probes are looked up at once. Each lookup waits for memory
// several times; the lookups of a chunk wait at the same time.
const compareChunk = 128

// compareSet checks set, and plans what has to be added and changed.
func (p *plan) compareSet(set probe.Set) error {
	chunk := make([]wish, 0, min(len(set), compareChunk))
	for id, desired := range set {
		if chunk = append(chunk, wish{id: id, probe: desired}); len(chunk) == compareChunk {
			p.compareChunk(chunk)
			chunk = chunk[:0]
		}
	}
	p.compareChunk(chunk)
	return p.invalid.err()
}

func (p *plan) compareChunk(wishes []wish) {
	p.engine.registry.lookUp(wishes)
	for i := range wishes {
		if err := p.compare(&wishes[i]); err != nil {
			p.invalid.add(wishes[i].id, err)
		}
	}
}

// maxInvalidProbes is how many invalid probes the error of Apply names.
const maxInvalidProbes = 10

// invalidProbes collects the errors of invalid probes. They come in random order.
type invalidProbes struct {
	count int
	first []invalidProbe // by ID
}

type invalidProbe struct {
	id  probe.ID
	err error
}

func (v *invalidProbes) add(id probe.ID, err error) {
	v.count++
	at, _ := slices.BinarySearchFunc(v.first, id, func(p invalidProbe, id probe.ID) int { return p.id.Compare(id) })
	if at == maxInvalidProbes {
		return
	}
	v.first = slices.Insert(v.first, at, invalidProbe{id, err})
	v.first = v.first[:min(len(v.first), maxInvalidProbes)]
}

// err returns the first errors, joined, or nil.
func (v *invalidProbes) err() error {
	var errs []error
	for _, p := range v.first {
		errs = append(errs, fmt.Errorf("probe %q: %w", p.id, p.err))
	}
	if more := v.count - len(v.first); more > 0 {
		errs = append(errs, fmt.Errorf("%d more probes are invalid", more))
	}
	return errors.Join(errs...)
}

// compare plans the change that a wish needs, if any.
func (p *plan) compare(w *wish) error {
	s, desired := w.slot, &w.probe
	if err := p.complete(w.id, desired, s == nil); err != nil {
		return err
	}
	c := change{id: w.id, slot: s, address: desired.Target.Address}
	if s != nil {
		c.before = s.spec.Load()
		c.moved = s.currentAddress() != c.address || !maps.Equal(c.before.target.Ports, desired.Target.Ports)
	}
	switch {
	case s == nil:
		p.counts.Added++
		c.action = added
		var err error
		if c.memory, err = p.memory(w.id, desired.Rule); err != nil {
			return err
		}
	case c.moved || !c.before.sameHandler(desired) || !c.before.sameTarget(desired):
		p.counts.Replaced++
		c.action = replaced
	case c.before.rule != desired.Rule:
		p.counts.Updated++
		desired.Handler = c.before.configured
		c.action = adjusted
	default:
		p.counts.Kept++
		return nil
	}
	c.spec = p.engine.specs.of(desired)
	p.changes = append(p.changes, c)
	return nil
}

// complete fills in what a desired probe leaves out, and checks it; its ID only if
// it is new.
func (p *plan) complete(id probe.ID, desired *probe.Probe, isNew bool) error {
	if isNew {
		if err := id.Check(); err != nil {
			return err
		}
	}
	r := &desired.Rule
	if r.Kind != 0 && r.Kind != id.Kind {
		return fmt.Errorf("rule.kind is %v", r.Kind)
	}
	if desired.Target.Name != "" && desired.Target.Name != id.Target {
		return fmt.Errorf("target.name is %q", desired.Target.Name)
	}
	if desired.Handler == nil {
		return errors.New("handler must not be nil")
	}
	r.Kind, desired.Target.Name = id.Kind, id.Target
	*r = r.WithDefaults()
	if r.Compatibility == probe.Mended {
		r.Compatibility = p.engine.conf.Compatibility
	}
	return r.Check()
}

// removeUnwanted plans the removal of every probe that is not in set, which was compared.
func (p *plan) removeUnwanted(set probe.Set) {
	n := &p.counts
	if n.Removed = p.engine.registry.count() - n.Kept - n.Updated - n.Replaced; n.Removed == 0 {
		return
	}
	for _, t := range p.engine.registry.all() {
		for _, s := range p.engine.registry.probesOf(t) {
			if _, ok := set[s.id()]; !ok {
				p.changes = append(p.changes, change{action: removed, id: s.id(), slot: s, before: s.spec.Load()})
			}
		}
	}
}

// separate gives each probe of a StatefulHandler a handler of its own. A probe that
// is only adjusted keeps the one that it has.
func (p *plan) separate() {
	for _, c := range p.changes {
		switch {
		case c.spec == nil || c.spec.handler != nil:
		case c.action == adjusted:
			c.spec.use(c.before.handler)
		default:
			c.spec.use(c.spec.configured.(probe.StatefulHandler).ForProbe())
		}
	}
}

// retain counts the probes of each spec, before their first attempts.
func (p *plan) retain() {
	for _, c := range p.changes {
		if c.spec == nil {
			continue
		}
		if c.spec.users++; c.spec.users == 1 {
			p.engine.scheduler.retain(c.spec)
		}
	}
}

// release closes the handlers that no probe has now, if their attempts have ended.
func (p *plan) release() {
	for _, c := range p.changes {
		if c.before == nil {
			continue
		}
		if c.before.users--; c.before.users == 0 {
			p.engine.scheduler.release(c.before)
		}
	}
}

// apply makes changes, which are sorted, and reconciles each target when all its
// probes have changed. It locks mu.
func (sc *scheduler) apply(changes []change) {
	sc.mu.Lock()
	defer sc.unlock()
	for i, c := range changes {
		switch c.action {
		case added:
			c.slot = sc.add(c)
		case removed:
			sc.keepSummary(c.slot.target)
			sc.remove(c.slot)
		case adjusted:
			sc.adjust(c.slot, c.spec)
		case replaced:
			sc.replace(c)
		}
		if i+1 == len(changes) || changes[i+1].id.Target != c.id.Target {
			sc.dropSummary(c.slot.target)
			sc.markStarted(c.slot.target)
			sc.reconcileAll(c.slot.target)
		}
	}
	sc.wakeIfEarlier()
}

func (sc *scheduler) add(c change) *slot {
	s := &slot{
		key: sc.schedule.Add(schedule.TimesOf(c.id, c.spec.rule.Period), c.spec.stepper != nil), kind: c.id.Kind, name: c.id.Name,
		addressType: typeOf(c.address), status: status{address: c.address, waitReason: verdict.NoInstance},
	}
	s.spec.Store(c.spec)
	s.keepDurations(c.spec.rule.Compatibility)
	if c.memory != nil {
		s.restore(c.memory, &sc.clock)
	}
	if int(s.key) == len(sc.slots) {
		sc.slots = append(sc.slots, nil)
	}
	sc.slots[s.key] = s
	if sc.registry.add(s, c.id, c.memory, &sc.clock) && sc.ctx != nil {
		sc.unreported.add(s.target, sc.clock.now())
	}
	sc.notify(c.id, probeAdded)
	return s
}

// keepSummary keeps whether a target that loses a probe has started and is ready. If it
// loses all of them, that stands until its instance is reported again.
func (sc *scheduler) keepSummary(t *target) {
	before := t.instance.Load()
	if before == nil || before.kept {
		return
	}
	in := *before
	in.kept, in.ready = true, t.isReady(sc.registry.probesOf(t))
	t.instance.Store(&in)
}

// dropSummary takes back what keepSummary has done, if the target still has probes.
func (sc *scheduler) dropSummary(t *target) {
	if in := *t.current(); in.kept && len(sc.registry.probesOf(t)) > 0 {
		in.kept, in.ready = false, false
		t.instance.Store(&in)
	}
}

func (sc *scheduler) remove(s *slot) {
	sc.drop(s)
	sc.schedule.Remove(s.key)
	sc.slots[s.key] = nil
	sc.registry.remove(s)
	s.mu.Lock()
	s.removed, s.next = true, 0
	if s.rare != nil {
		s.rare.gauge.set(probe.Undecided)
	}
	s.mu.Unlock()
	sc.notify(s.id(), probeRemoved)
}

// adjust gives a probe another rule.
func (sc *scheduler) adjust(s *slot, sp *spec) {
	moved := s.spec.Load().rule.Period != sp.rule.Period
	sc.setSpec(s, sp)
	times, now := sc.schedule.Times(s.key), sc.clock.now()
	if s.inflight != nil {
		s.inflight.next = times.From(now)
	} else if moved && sc.schedule.IsDue(s.key) && s.currentWaitReason() == verdict.NotWaiting {
		sc.at(s, times.From(now))
	}
}

// replace gives a probe another handler or target.
func (sc *scheduler) replace(c change) {
	s := c.slot
	sc.drop(s)
	sc.setSpec(s, c.spec)
	sc.schedule.Forget(s.key)
	s.addressType = typeOf(c.address)
	s.mu.Lock()
	s.address = c.address
	before := s.state
	if s.state = verdict.Renew(s.kind, before); c.moved {
		s.state = verdict.Relocate(s.kind, before)
	}
	s.result, s.resultAt, s.waitReason = nil, 0, verdict.NoInstance
	changed := s.state.Verdict != before.Verdict
	if changed {
		s.publish(sc.clock.now())
	}
	s.mu.Unlock()
	if changed {
		sc.notify(c.id, probeChanged)
	} else {
		sc.notifyMemory(c.id)
	}
	sc.idle(s)
}

func (sc *scheduler) setSpec(s *slot, sp *spec) {
	s.spec.Store(sp)
	s.keepDurations(sp.rule.Compatibility)
	sc.schedule.Configure(s.key, schedule.TimesOf(s.id(), sp.rule.Period), sp.stepper != nil)
}
