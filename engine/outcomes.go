package engine

import (
	"context"
	"encoding/binary"
	"math"
	"slices"

	"github.com/sonde-probe/sonde/probe"
)

// Limits on the outcomes that an Engine records, in bytes. A run of attempts with the same outcome takes one byte for up to 31
// attempts, and two for up to 4095.
const (
	maxOutcomes    = 512      // for one probe; the oldest are discarded
	maxAllOutcomes = 32 << 20 // for all probes; above it, a probe that makes attempts is limited to minOutcomes
	minOutcomes    = 32
)

// ProbeOutcomes has the outcomes of the latest attempts of a probe that counted for its verdict, the oldest first. It excludes
// failures outside the regular times, and attempts that could not be made for a reason of the engine itself. It covers all
// instances, but only the probe's current handler and target.
type ProbeOutcomes struct {
	ID   probe.ID
	Runs []probe.OutcomeRun // adjacent runs have different outcomes
}

// outcomes has the outcomes of a probe whose attempts had different outcomes. The zero outcomes is empty.
type outcomes struct {
	past    []byte // finished runs, as varints: attempts<<2 | outcome
	current probe.OutcomeRun
}

// add adds an attempt, and reports whether the outcomes should be written to disk, since a run has begun or has doubled in
// length.
func (o *outcomes) add(outcome probe.Outcome) (notable bool) {
	if o.current.Attempts > 0 && o.current.Outcome == outcome {
		n := min(o.current.Attempts, math.MaxInt32-1) + 1
		o.current.Attempts = n
		return n >= 16 && n&(n-1) == 0
	}
	if o.current.Attempts > 0 {
		o.past = binary.AppendUvarint(o.past, o.current.Attempts<<2|uint64(o.current.Outcome))
	}
	o.current = probe.OutcomeRun{Outcome: outcome, Attempts: 1}
	return true
}

// trim discards the oldest runs until past has at most the given number of bytes.
func (o *outcomes) trim(most int) {
	for len(o.past) > most {
		_, size := binary.Uvarint(o.past)
		o.past = append(o.past[:0], o.past[size:]...)
	}
}

// allOutcomes bounds the memory for the outcomes of all probes. scheduler.mu guards it.
type allOutcomes struct {
	size int // bytes
}

// each yields all runs, the oldest first.
func (o *outcomes) each(yield func(probe.OutcomeRun) bool) {
	for rest := o.past; len(rest) > 0; {
		n, size := binary.Uvarint(rest)
		if !yield(probe.OutcomeRun{Outcome: probe.Outcome(n & 3), Attempts: n >> 2}) {
			return
		}
		rest = rest[size:]
	}
	if o.current.Attempts > 0 {
		yield(o.current)
	}
}

// add records the outcome of an attempt. It must be called before slot.attempts counts the attempt. As long as all attempts have
// the same outcome and count, slot.attempts is sufficient. add reports whether the outcomes should be written to disk. It also
// needs slot.mu.
func (o *allOutcomes) add(s *slot, outcome probe.Outcome, counts bool) (notable bool) {
	if s.rare == nil || s.rare.outcomes == nil {
		only := s.onlyOutcome()
		if counts && (only.Attempts == 0 || only.Outcome == outcome) {
			return false
		}
		s.makeRare().outcomes = &outcomes{current: only}
	}
	if !counts {
		return false
	}
	size := s.outcomesSize()
	notable = s.rare.outcomes.add(outcome)
	o.limit(s, size)
	return notable
}

// onlyOutcome returns the common outcome of all attempts, and their number, for a probe without outcomes. It needs mu.
func (s *slot) onlyOutcome() (only probe.OutcomeRun) {
	for outcome, n := range s.attempts {
		if n > 0 {
			only = probe.OutcomeRun{Outcome: probe.Outcome(outcome), Attempts: min(n, math.MaxInt32)}
		}
	}
	return only
}

// currentOutcomes returns the recorded outcomes of the probe.
func (s *slot) currentOutcomes() []probe.OutcomeRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rare != nil && s.rare.outcomes != nil {
		return slices.Collect(s.rare.outcomes.each)
	}
	return probe.AppendOutcomes(nil, s.onlyOutcome())
}

// limit discards the oldest outcomes of a probe beyond the limits. size is the previous number of bytes of its outcomes. It also
// needs slot.mu.
func (o *allOutcomes) limit(s *slot, size int) {
	most := maxOutcomes
	if o.size > maxAllOutcomes {
		most = minOutcomes
	}
	s.rare.outcomes.trim(most)
	o.size += s.outcomesSize() - size
}

// outcomesSize returns the number of bytes of the outcomes of a probe. It needs mu.
func (s *slot) outcomesSize() int {
	if s.rare == nil || s.rare.outcomes == nil {
		return 0
	}
	return len(s.rare.outcomes.past)
}

// forget discards the outcomes of a probe whose handler or target has changed.
func (o *allOutcomes) forget(s *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.size -= s.outcomesSize()
	if s.onlyOutcome().Attempts > 0 || s.rare != nil && s.rare.outcomes != nil {
		s.makeRare().outcomes = new(outcomes)
	}
}

// Outcomes returns the outcomes of the latest attempts of a target's probes, sorted by ID, without probes that have none. It
// never waits for the scheduler.
func (r Records) Outcomes(target string) (all []ProbeOutcomes) {
	_, slots := r.engine.registry.target(target)
	for _, s := range slots {
		if runs := s.currentOutcomes(); len(runs) > 0 {
			all = append(all, ProbeOutcomes{s.id(), runs})
		}
	}
	return all
}

// AllOutcomes returns the targets with probes that had different outcomes, sorted by name.
func (r Records) AllOutcomes() (targets []string) {
	for t := range r.engine.registry.walk(context.Background(), "") {
		if slices.ContainsFunc(t.slots, (*slot).hasOutcomes) {
			targets = append(targets, t.target.name)
		}
	}
	return targets
}

// hasOutcomes reports whether the probe had different outcomes.
func (s *slot) hasOutcomes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rare != nil && s.rare.outcomes != nil
}

// RestoreOutcomes replaces the outcomes of a probe by those that an earlier engine recorded. Call it after Apply or Change and
// before Run. It has no effect if the probe does not exist.
func (r Records) RestoreOutcomes(id probe.ID, runs []probe.OutcomeRun) {
	s := r.engine.registry.probe(id)
	if s == nil {
		return
	}
	var restored outcomes
	for _, run := range runs {
		if run.Outcome > probe.Failure || run.Attempts == 0 || run.Attempts > math.MaxInt32 {
			return
		}
		restored.add(run.Outcome)
		restored.current.Attempts = run.Attempts
	}
	sc := r.engine.scheduler
	sc.mu.Lock()
	defer sc.unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	size := s.outcomesSize()
	s.makeRare().outcomes = &restored
	sc.outcomes.limit(s, size)
}
