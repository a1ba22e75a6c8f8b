package engine

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/sonde-probe/sonde/probe"
)

// Limits on the history that an Engine keeps.
const (
	maxTransitions     = 32       // for one target; the oldest are discarded
	maxHistory         = 32 << 20 // bytes for all transitions; above it, the oldest of all are discarded
	maxTransitionText  = 400      // bytes of a Detail
	transitionOverhead = int(unsafe.Sizeof(transition{})+2*unsafe.Sizeof(entry{})) + 3*16
)

// Transition is an entry in the history of a target: the verdict of a probe has changed, or its attempts could not be made or can
// be made again; the target was ejected, damped or paused, or that has ended; or an instance has started or ended, or has changed
// in a way that affects the state of the target. It can be encoded as JSON.
type Transition struct {
	Seq   uint64            `json:"seq,omitempty"` // sequence number across all targets and engines: always increasing
	At    time.Time         `json:"at"`
	State probe.TargetState `json:"state"` // of the target, after the transition

	Reason probe.Reason `json:"reason,omitempty"`
	Detail string       `json:"detail,omitempty"` // at most 400 bytes

	// For a transition of a probe. Kind is 0 if the transition concerns the instance.
	Kind     probe.Kind    `json:"kind,omitempty"`
	Name     string        `json:"name,omitempty"`
	Verdict  probe.Verdict `json:"verdict,omitempty"`
	Previous probe.Verdict `json:"previous,omitempty"`
	Attempts int32         `json:"attempts,omitempty"` // consecutive attempts that decided; 0 if the instance did, or by "evidence"
	Policy   probe.Policy  `json:"policy,omitempty"`   // policy by which attempts decided
	Blind    bool          `json:"blind,omitempty"`    // attempts cannot be made: see Status.Blind
	Warns    bool          `json:"warns,omitempty"`    // the probe warns: see Status.Warned
	Doubtful bool          `json:"doubtful,omitempty"` // the engine may be at fault: see Engine.Doubts

	Ejected    bool `json:"ejected,omitempty"`    // the target was ejected, and Verdict has not changed: see Ejection
	Readmitted bool `json:"readmitted,omitempty"` // the ejection has ended

	Damped   bool `json:"damped,omitempty"`   // the target is damped, since it flapped: see Change.Dampings
	Undamped bool `json:"undamped,omitempty"` // the damping has ended

	Paused   bool `json:"paused,omitempty"`   // the target was paused: see Admin.Pause
	Unpaused bool `json:"unpaused,omitempty"` // the pause has ended

	Instance string      `json:"instance,omitempty"`
	Phase    probe.Phase `json:"phase,omitempty"`    // of the instance
	Restarts int32       `json:"restarts,omitempty"` // number of earlier instances
}

// transition is a Transition of a target in the history.
type transition struct {
	Transition
	of   *pastOf
	size int
}

// pastOf has the transitions of one target, the oldest first.
type pastOf struct {
	target  string
	entries []*transition
}

// entry is an entry in the sequence of all transitions.
type entry struct {
	seq         uint64
	*transition // nil if it was discarded
}

// history has the latest transitions of all targets, including removed ones. A target without transitions takes no memory.
type history struct {
	pastMu    sync.Mutex // guards all below
	targets   map[string]*pastOf
	all       []entry // sorted by seq; at most half of them discarded
	first     int     // index in all: the entries before it were discarded
	forgotten int     // number of discarded entries in all
	size      int     // bytes of the entries in all that are not discarded
	last      uint64  // greatest Seq so far
}

// has reports whether a target has transitions.
func (h *history) has(target string) bool {
	h.pastMu.Lock()
	defer h.pastMu.Unlock()
	return h.targets[target] != nil
}

// add adds a transition of a target. It assigns the next Seq, unless the transition has a greater one, and discards the oldest
// transitions beyond the limits.
func (h *history) add(target string, t Transition) {
	h.pastMu.Lock()
	defer h.pastMu.Unlock()
	t.Seq = max(t.Seq, h.last+1)
	h.last = t.Seq
	of := h.targets[target]
	if of == nil {
		of = &pastOf{target: target}
		h.targets[target] = of
	}
	added := &transition{t, of, transitionOverhead + len(t.Detail) + len(t.Reason) + len(t.Instance) + len(target)}
	of.entries = append(of.entries, added)
	h.all = append(h.all, entry{t.Seq, added})
	if h.size += added.size; len(of.entries) > maxTransitions {
		h.forgetFirst(of)
	}
	for h.size > maxHistory {
		for h.all[h.first].transition == nil {
			h.first++
		}
		h.forgetFirst(h.all[h.first].of)
	}
}

// forgetFirst discards the oldest transition of a target.
func (h *history) forgetFirst(of *pastOf) {
	h.size -= of.entries[0].size
	h.all[h.from(of.entries[0].Seq)].transition = nil
	if of.entries = slices.Delete(of.entries, 0, 1); len(of.entries) == 0 {
		delete(h.targets, of.target)
	}
	if h.forgotten++; h.forgotten > len(h.all)/2 {
		h.all = slices.DeleteFunc(h.all, func(e entry) bool { return e.transition == nil })
		h.first, h.forgotten = 0, 0
	}
}

// from returns the index of the first transition whose Seq is at least seq.
func (h *history) from(seq uint64) int {
	i, _ := slices.BinarySearchFunc(h.all, seq, func(e entry, seq uint64) int { return cmp.Compare(e.seq, seq) })
	return i
}

// of returns the transitions of a target, the oldest first.
func (h *history) of(target string) (past []Transition) {
	h.pastMu.Lock()
	defer h.pastMu.Unlock()
	if of := h.targets[target]; of != nil {
		for _, t := range of.entries {
			past = append(past, t.Transition)
		}
	}
	return past
}

// after returns up to limit transitions with a Seq greater than seq, the oldest first, and the last Seq that this covers.
func (h *history) after(seq uint64, limit int) (some []TargetTransition, to uint64) {
	h.pastMu.Lock()
	defer h.pastMu.Unlock()
	for _, e := range h.all[h.from(seq+1):] {
		switch {
		case limit == 0:
			return nil, max(seq, h.last)
		case e.transition == nil:
		case len(some) == limit:
			return some, some[limit-1].Seq
		default:
			some = append(some, TargetTransition{e.of.target, e.Transition})
		}
	}
	return some, max(seq, h.last)
}

// names returns the targets that have transitions.
func (h *history) names() []string {
	h.pastMu.Lock()
	defer h.pastMu.Unlock()
	names := make([]string, 0, len(h.targets))
	for name := range h.targets {
		names = append(names, name)
	}
	return names
}

// History returns the latest transitions of a target, the oldest first, at most 32. A target that has been well since its start
// has none. The history of a removed target is kept until all histories together exceed 32 MiB. It never waits for the scheduler.
func (r Records) History(target string) []Transition {
	return r.engine.scheduler.summaries.history.of(target)
}

// Histories returns the targets that have a History, in no particular order.
func (r Records) Histories() []string { return r.engine.scheduler.summaries.history.names() }

// TargetTransition is a Transition with its target.
type TargetTransition struct {
	Target string
	Transition
}

// TransitionsAfter returns up to limit transitions of all targets with a Seq greater than seq, sorted by Seq, and the seq for the
// next call. Transitions that were discarded because of the limits of the history are missing; gaps in the numbers up to last
// show how many. It never waits for the scheduler.
func (r Records) TransitionsAfter(seq uint64, limit int) (some []TargetTransition, last uint64) {
	return r.engine.scheduler.summaries.history.after(seq, limit)
}

// SkipTransitions makes the Seq of further transitions greater than seq, since readers may have seen transitions of an earlier
// engine that were not restored.
func (r Records) SkipTransitions(seq uint64) {
	h := &r.engine.scheduler.summaries.history
	h.pastMu.Lock()
	defer h.pastMu.Unlock()
	h.last = max(h.last, seq)
}

// RestoreHistory restores the transitions of a target that an earlier engine recorded, the oldest first. Call it before Run and
// before the target is reported. A transition keeps its Seq if it is greater than all restored so far.
func (r Records) RestoreHistory(target string, past []Transition) {
	for _, t := range past[max(0, len(past)-maxTransitions):] {
		t.Detail = probe.CleanText(t.Detail, maxTransitionText)
		r.engine.scheduler.summaries.history.add(target, t)
	}
}

// recordVerdict adds the result of an event to the history of the probe's target. A probe that is well from the start is not
// recorded.
func (m *summaries) recordVerdict(s *slot, f *folded, res *probe.Result, now int64) {
	turned := f.Changed && f.state.Instance == f.previous.Instance || f.decided && f.first && f.state.Verdict == probe.Failing
	if !turned && f.blind == f.wasBlind && (f.warns == f.warned || f.Changed) || res == nil && f.state.Down != f.previous.Down {
		return // the latter is recorded as a change of the instance
	}
	name := s.target.name
	if f.first && f.state.Verdict != probe.Failing && !f.blind && !f.warns && !m.history.has(name) {
		return
	}
	t := Transition{Kind: s.kind, Name: s.name, Verdict: f.state.Verdict, Previous: f.previous.Verdict, Blind: f.blind, Warns: f.warns, Instance: f.state.Instance}
	if t.Verdict == probe.Failing {
		t.Warns = s.onlyWarns()
	}
	if res != nil {
		t.Reason, t.Detail = res.Reason, res.Detail
		if last := s.currentFault(m.clock); last.At.Equal(m.clock.Time(now)) {
			t.Detail = last.Text(last.At)
		}
		rule := &s.spec.Load().rule
		t.Policy = rule.Policy
		if t.Attempts = rule.DecidingRun(f.state.Last); f.blind && !turned {
			t.Attempts = f.state.Errors
		}
	}
	if h := healthAt(m.monitor, now); h.isUnwell() && (f.blind || t.Verdict == probe.Failing) {
		t.Doubtful = m.doubts(s, h)
	}
	m.recordTransition(s.target, t, now)
}

// recordInstance adds a report to the history of a target. state is the previous state of the target. A first instance that is
// well, or has run since an earlier engine, is not recorded.
func (m *summaries) recordInstance(t *target, before *instance, state probe.TargetState, now int64) {
	in := t.current()
	changed := before.id != in.id || before.phase != in.phase || before.terminating != in.terminating
	if !changed && t.currentState() == state {
		return
	}
	if in.phase <= probe.Running && in.restarts == 0 && !t.currentState().InTrouble() && !m.history.has(t.name) {
		return
	}
	if before.phase == probe.Absent && in.phase == probe.Running && (before.id == in.id || before.id == "" && 0 < in.since && in.since < m.clock.Start()) {
		return
	}
	tr := Transition{Instance: in.id, Phase: in.phase, Restarts: in.restarts}
	if in.note != nil {
		tr.Reason, tr.Detail = in.note.reason, in.note.detail
	}
	m.recordTransition(t, tr, now)
}

func (m *summaries) recordTransition(t *target, tr Transition, now int64) {
	tr.At, tr.State = m.clock.Time(now), t.currentState()
	tr.Detail = strings.Clone(probe.CleanText(tr.Detail, maxTransitionText)) // not the whole detail of a result
	m.history.add(t.name, tr)
	m.out.record(t.name, RecordHistory)
}
