package engine

import (
	"context"
	"encoding/binary"
	"math"
	"slices"

	"github.com/sonde-probe/sonde/probe"
)

// Limits of the outcomes that an Engine remembers, in bytes. A run of attempts with the same outcome
// takes one byte up to 31 attempts, two up to 4095.
const (
	maxOutcomes    = 512      // of one probe; the oldest are forgotten
	maxAllOutcomes = 32 << 20 // of all probes, beyond which each one that goes on keeps minOutcomes
	minOutcomes    = 32
)

// ProbeOutcomes are the outcomes of the latest attempts of a probe that have counted for its
// verdict, the oldest first: neither failures outside its regular times, nor attempts that could not
// be made for a reason of the engine's own. They are about the handler and the target that the
// probe has now, and about all instances.
type ProbeOutcomes struct {
	ID   probe.ID
	Runs []probe.OutcomeRun // two in a row have different outcomes
}

// outcomes are the outcomes of a probe whose attempts have not all had the same one. The zero
// outcomes have none.
type outcomes struct {
	past    []byte // runs that have ended, as varints: attempts<<2 | outcome
	current probe.OutcomeRun
}

// add adds an attempt, and reports whether that is to be written to disk: a run has begun with it, or
// has become twice as long.
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

// trim forgets the oldest runs beyond a number of bytes.
func (o *outcomes) trim(most int) {
	for len(o.past) > most {
		_, size := binary.Uvarint(o.past)
		o.past = append(o.past[:0], o.past[size:]...)
	}
}

// allOutcomes bounds the memory of the outcomes of all probes. scheduler.mu guards it.
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

// add remembers the outcome of an attempt, before slot.attempts counts it. Until an attempt
// has another outcome than all before, or does not count, slot.attempts says all there is to know.
// It reports whether that is to be written to disk. It needs slot.mu, too.
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

// onlyOutcome returns the outcome of all attempts, with their number, of a probe without outcomes.
// It needs mu.
func (s *slot) onlyOutcome() (only probe.OutcomeRun) {
	for outcome, n := range s.attempts {
		if n > 0 {
			only = probe.OutcomeRun{Outcome: probe.Outcome(outcome), Attempts: min(n, math.MaxInt32)}
		}
	}
	return only
}

// currentOutcomes returns the outcomes that allOutcomes.add remembers.
func (s *slot) currentOutcomes() []probe.OutcomeRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rare != nil && s.rare.outcomes != nil {
		return slices.Collect(s.rare.outcomes.each)
	}
	return probe.AppendOutcomes(nil, s.onlyOutcome())
}

// limit forgets the oldest outcomes of a probe beyond the limits, of which it has had size
// bytes before. It needs slot.mu, too.
func (o *allOutcomes) limit(s *slot, size int) {
	most := maxOutcomes
	if o.size > maxAllOutcomes {
		most = minOutcomes
	}
	s.rare.outcomes.trim(most)
	o.size += s.outcomesSize() - size
}

// outcomesSize returns how many bytes the outcomes of a probe have. It needs mu.
func (s *slot) outcomesSize() int {
	if s.rare == nil || s.rare.outcomes == nil {
		return 0
	}
	return len(s.rare.outcomes.past)
}

// forget forgets the outcomes of a probe whose handler or target is another one now.
func (o *allOutcomes) forget(s *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.size -= s.outcomesSize()
	if s.onlyOutcome().Attempts > 0 || s.rare != nil && s.rare.outcomes != nil {
		s.makeRare().outcomes = new(outcomes)
	}
}

// Outcomes returns the outcomes of the latest attempts of a target's probes, sorted by ID; of
// probes without any it has none. It never waits for the scheduler.
func (r Records) Outcomes(target string) (all []ProbeOutcomes) {
	_, slots := r.engine.registry.target(target)
	for _, s := range slots {
		if runs := s.currentOutcomes(); len(runs) > 0 {
			all = append(all, ProbeOutcomes{s.id(), runs})
		}
	}
	return all
}

// AllOutcomes returns the targets whose probes have had different outcomes, sorted by name.
func (r Records) AllOutcomes() (targets []string) {
	for t := range r.engine.registry.walk(context.Background(), "") {
		if slices.ContainsFunc(t.slots, (*slot).hasOutcomes) {
			targets = append(targets, t.target.name)
		}
	}
	return targets
}

// hasOutcomes reports whether the probe has had different outcomes.
func (s *slot) hasOutcomes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rare != nil && s.rare.outcomes != nil
}

// RestoreOutcomes puts the outcomes that an earlier engine has remembered about a probe in place of
// its own. Call it after Apply or Change and before Run. It does nothing without such a probe.
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
