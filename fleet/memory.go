package fleet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// version is that of a targetMemory. A later release that only adds fields has the same.
const version = 3

// targetMemory is what is stored of a target, as JSON, and of the group of its name.
type targetMemory struct {
	Version     int              `json:"version"`
	Restarts    *restart.Memory  `json:"restarts,omitempty"`
	Penalty     *verdict.Penalty `json:"penalty,omitempty"`
	Told        []byte           `json:"told,omitempty"`        // see Notices.Told
	ToldOfGroup []byte           `json:"toldOfGroup,omitempty"` // see Notices.ToldOfGroup
	Shown       json.RawMessage  `json:"shown,omitempty"`       // a shown; absent if it follows from the rest
	Probes      []probeMemory    `json:"probes,omitempty"`      // sorted
}

// probeMemory is what is stored of a probe.
type probeMemory struct {
	Kind     probe.Kind      `json:"kind"`
	Name     string          `json:"name,omitempty"`
	Memory   json.RawMessage `json:"memory"`          // an engine.Memory
	Cause    string          `json:"cause,omitempty"` // see cause.String
	Blind    string          `json:"blind,omitempty"` // why its attempts cannot be made, as a cause
	Ejection *ejection       `json:"ejection,omitempty"`
}

// shown is what engines show of a target, besides what the next owner needs to go on.
type shown struct {
	State    probe.TargetState `json:"state,omitzero"` // one that has lasted since Since; absent for one that follows from the probes
	Since    time.Time         `json:"since,omitzero"`
	Decided  bool              `json:"decided,omitempty"`  // it is known that it is not ready: see engine.Restated
	Instance *probe.Instance   `json:"instance,omitempty"` // absent if it is restart.Memory.Shown
}

// shownInstance returns an instance to be stored without its target and ID, nil if it follows from the memory of its restarts.
func shownInstance(in, follows probe.Instance) *probe.Instance {
	if in.Since.Equal(follows.Since) {
		in.Since = follows.Since
	}
	if in.Equal(follows) || in.ID != follows.ID || in.Phase == probe.Absent {
		return nil
	}
	in.Target, in.ID, in.Since = "", "", in.Since.UTC()
	if in.Detail == follows.Detail {
		in.Detail = ""
	}
	return bounded(in)
}

// instance returns the instance that was stored beside the memory from which another one follows.
func (s shown) instance(follows probe.Instance) probe.Instance {
	if s.Instance == nil {
		return follows
	}
	in := bounded(*s.Instance)
	in.Target, in.ID, in.Detail = follows.Target, follows.ID, cmp.Or(in.Detail, follows.Detail)
	return *in
}

// bounded returns an instance whose texts are bounded, and safe.
func bounded(in probe.Instance) *probe.Instance {
	in.Reason, in.Detail = probe.Reason(probe.OneLine(string(in.Reason), maxCause)), probe.CleanText(in.Detail, probe.MaxDetail)
	return &in
}

// maxCause bounds the texts of a cause and of an ejection, in bytes. Etcd keeps each change of a memory for some time, so
// these are few.
const maxCause = 120

// memories are what the next owner of targets has to remember.
type memories struct {
	probes    map[probe.ID]engine.Memory
	restarts  map[string]restart.Memory  // by target
	penalties map[string]verdict.Penalty // by target
	told      map[string][]byte          // by target; nil for one of which receivers know no trouble

	toldOfGroups map[string][]byte // by group; nil for one of which receivers know no trouble

	// What follows is not needed, but shown by other engines.
	causes    map[probe.ID]cause           // of probes that fail, and of those that pass with a warning
	blinds    map[probe.ID]cause           // of probes that are blind
	ejections map[probe.ID]engine.Ejection // of probes that pass
	shown     map[string]shown             // by target
}

func newMemories() memories {
	return memories{
		map[probe.ID]engine.Memory{}, map[string]restart.Memory{}, map[string]verdict.Penalty{}, map[string][]byte{}, map[string][]byte{}, map[probe.ID]cause{}, map[probe.ID]cause{}, map[probe.ID]engine.Ejection{}, map[string]shown{},
	}
}

// ejection is an engine.Ejection as it is stored, but for its probe.
type ejection struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	Detail string    `json:"detail,omitempty"`
}

// ejectionOf returns an ejection to be stored, or as it was stored: bounded, and safe. Times are cut to milliseconds,
// since the engine may round them: what has not changed has the same bytes.
func ejectionOf(since, until time.Time, reason, detail string) ejection {
	return ejection{
		since.UTC().Truncate(time.Millisecond), until.UTC().Truncate(time.Millisecond),
		probe.OneLine(reason, maxCause), probe.CleanText(detail, maxCause),
	}
}

// cause is why a probe fails, as its owner has found when it began to, or when the reason changed: the details of later attempts
// are not stored. Of a probe that passes it is the warning of the latest attempt.
type cause struct {
	since  time.Time // when the verdict was published
	reason probe.Reason
	detail string
}

// parseCause returns what was stored, bounded and made safe again, without its time.
func parseCause(value string) cause {
	reason, detail, _ := strings.Cut(value, "\n")
	return cause{time.Time{}, probe.Reason(probe.OneLine(reason, maxCause)), probe.CleanText(detail, maxCause)}
}

// String returns the cause as it is stored: the reason, a newline, and the detail.
func (f cause) String() string {
	return probe.CleanText(string(f.reason)+"\n"+f.detail, maxCause)
}

// isOf reports whether this is about the verdict in a memory. The engine may round times.
func (f cause) isOf(m engine.Memory) bool {
	return f.reason != "" && f.since.Sub(m.Since).Abs() < time.Millisecond
}

// results returns the results that have made probes fail, the warnings of those that pass, and why others are blind.
func (m memories) results() map[probe.ID]probe.Result {
	all := make(map[probe.ID]probe.Result, len(m.causes))
	for id, f := range m.causes {
		if m.probes[id].State.Verdict == probe.Passing {
			all[id] = probe.Warn(f.reason, "%s", f.detail)
			continue
		}
		all[id] = probe.Fail(f.reason, "%s", f.detail)
	}
	for id, b := range m.blinds {
		all[id] = probe.Broken(b.reason, "%s", b.detail)
	}
	return all
}

// encode returns memories as bytes by target, the same for equal ones, and errors for the targets of which
// a part was left out, since it has no form or the memory would have more than coord.MaxMemory bytes.
func (m memories) encode() (values map[string][]byte, incomplete map[string]error) {
	all, incomplete := map[string]*targetMemory{}, map[string]error{}
	of := func(target string) *targetMemory {
		if all[target] == nil {
			all[target] = &targetMemory{Version: version}
		}
		return all[target]
	}
	for id, memory := range m.probes {
		value, err := memory.MarshalBinary()
		if err != nil {
			incomplete[id.Target] = fmt.Errorf("probe %q: %w", id, err)
			continue
		}
		p := probeMemory{Kind: id.Kind, Name: id.Name, Memory: value}
		if why, isKnown := m.causes[id]; isKnown {
			p.Cause = why.String()
		}
		if why, isBlind := m.blinds[id]; isBlind {
			p.Blind = why.String()
		}
		if e, isEjected := m.ejections[id]; isEjected {
			now := ejectionOf(e.Since, e.Until, string(e.Reason), e.Detail)
			p.Ejection = &now
		}
		of(id.Target).Probes = append(of(id.Target).Probes, p)
	}
	for target, p := range m.penalties {
		p.At, p.Since = p.At.UTC().Truncate(time.Millisecond), p.Since.UTC().Truncate(time.Millisecond)
		of(target).Penalty = &p
	}
	for target, told := range m.told {
		if told != nil {
			of(target).Told = told
		}
	}
	for group, told := range m.toldOfGroups {
		if told != nil {
			of(group).ToldOfGroup = told
		}
	}
	for target, memory := range m.restarts {
		of(target).Restarts = &memory
	}
	for target, s := range m.shown {
		if s == (shown{}) {
			continue
		}
		value, err := json.Marshal(s)
		if err != nil {
			incomplete[target] = errors.Join(incomplete[target], fmt.Errorf("state and instance: %w", err))
			continue
		}
		of(target).Shown = value
	}
	values = make(map[string][]byte, len(all))
	for target, t := range all {
		var err error
		if values[target], err = t.encode(); err != nil {
			incomplete[target] = errors.Join(incomplete[target], err)
		}
	}
	return values, incomplete
}

// leaveOut leaves out the parts that JSON has no form of, such as a time after the year 9999, and returns an error that
// names them, or nil.
func (t *targetMemory) leaveOut() (missing error) {
	isEncodable := func(part any, name string, of ...any) bool {
		_, err := json.Marshal(part)
		if err != nil {
			missing = errors.Join(missing, fmt.Errorf(name+": %w", append(of, err)...))
		}
		return err == nil
	}
	if !isEncodable(t.Restarts, "restarts") {
		t.Restarts = nil
	}
	if !isEncodable(t.Penalty, "penalty") {
		t.Penalty = nil
	}
	for i := range t.Probes {
		if p := &t.Probes[i]; !isEncodable(p.Ejection, "ejection by the %v probe %q", p.Kind, p.Name) {
			p.Ejection = nil
		}
	}
	return missing
}

// encode returns the memory as bytes. If these are too many it leaves out what receivers were told, which they may be told
// again, and then probes, which are attempted again, and says so. A restart that was made must not be made again.
func (t *targetMemory) encode() (value []byte, incomplete error) {
	slices.SortFunc(t.Probes, func(a, b probeMemory) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // it makes texts longer, which are bounded
	var cut error
	for probes := len(t.Probes); ; {
		b.Reset()
		if err := e.Encode(t); err != nil {
			if incomplete = t.leaveOut(); incomplete == nil {
				return nil, err
			}
			continue
		}
		switch {
		case b.Len() <= coord.MaxMemory:
			return bytes.TrimSpace(b.Bytes()), errors.Join(incomplete, cut)
		case len(t.Told)+len(t.ToldOfGroup) > 0:
			t.Told, t.ToldOfGroup = nil, nil
		case t.Shown != nil:
			t.Shown = nil
		case len(t.Probes) > 0:
			t.Probes = t.Probes[:len(t.Probes)*9/10]
		default:
			t.Restarts, t.Penalty = nil, nil
		}
		cut = fmt.Errorf("%d of %d probes, and what receivers were told, are left out of what has to have at most %d bytes", probes-len(t.Probes), probes, coord.MaxMemory)
	}
}

// add adds the memory of a target that encode has made bytes of, or nothing if it returns an error.
func (m memories) add(target string, b []byte) error {
	var t targetMemory
	if err := json.Unmarshal(b, &t); err != nil {
		return fmt.Errorf("the memory is none of this release: %w", err)
	}
	if t.Version != version {
		return fmt.Errorf("the memory has version %d, this release has version %d", t.Version, version)
	}
	probes := map[probe.ID]engine.Memory{}
	for _, p := range t.Probes {
		id := probe.ID{Target: target, Kind: p.Kind, Name: p.Name}
		var memory engine.Memory
		if err := memory.UnmarshalBinary(p.Memory); err != nil {
			return fmt.Errorf("probe %q: %w", id, err)
		}
		probes[id] = memory
	}
	for _, p := range t.Probes {
		id := probe.ID{Target: target, Kind: p.Kind, Name: p.Name}
		if why := parseCause(p.Cause); why.reason != "" {
			why.since = probes[id].Since
			m.causes[id] = why
		}
		if p.Blind != "" {
			m.blinds[id] = parseCause(p.Blind)
		}
		if p.Ejection != nil && probes[id].State.Verdict == probe.Passing {
			e := ejectionOf(p.Ejection.Since, p.Ejection.Until, p.Ejection.Reason, p.Ejection.Detail)
			m.ejections[id] = engine.Ejection{Probe: id, Since: e.Since, Until: e.Until, Reason: probe.Reason(e.Reason), Detail: e.Detail}
		}
	}
	maps.Copy(m.probes, probes)
	if t.Restarts != nil {
		m.restarts[target] = *t.Restarts
	}
	if t.Penalty != nil {
		m.penalties[target] = *t.Penalty
	}
	var s shown
	if json.Unmarshal(t.Shown, &s) == nil { // a later release may have more states
		m.shown[target] = s
	}
	m.told[target], m.toldOfGroups[target] = t.Told, t.ToldOfGroup
	return nil
}

// Resume says what becomes of memories when all engines were stopped, not for long.
type Resume string

// The values of Resume. The zero value is as trust.
const (
	trust  Resume = "trust"  // probes and restarts go on
	verify Resume = "verify" // probes keep their verdicts, and are attempted at once
	forget Resume = "forget" // all begin anew
)

// resume changes memories to those with which an engine goes on that has not seen the owner before alive. A
// cause is not among them that could restart a target, for then it would without an attempt: how long
// all engines were stopped is not known when the store was stopped with them.
func (m memories) resume(how Resume) {
	if how == forget {
		clear(m.probes)
		clear(m.restarts)
		clear(m.penalties)
		clear(m.shown)
	}
	for id, memory := range m.probes {
		switch {
		case memory.State.Verdict == probe.Failing && id.Kind != probe.Readiness:
			m.probes[id] = memory.Forgotten()
		case how == verify:
			m.probes[id] = memory.Renewed(id.Kind)
		}
	}
}
