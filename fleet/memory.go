package fleet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// version is that of a memory. A later release that only adds fields has the same.
const version = 3

// memories are what the next owner of targets has to remember, by target.
type memories map[string]*memory

// memory is what is stored of a target, and of the group of its name, as JSON. Some of it is not needed, but shown by other
// engines.
type memory struct {
	Version         int              `json:"version"`
	Restarts        *restart.Memory  `json:"restarts,omitempty"`
	Penalty         *verdict.Penalty `json:"penalty,omitempty"`
	Notified        []byte           `json:"told,omitempty"`        // see Notices.Notified; nil for a target of which receivers know no trouble
	NotifiedOfGroup []byte           `json:"toldOfGroup,omitempty"` // see Notices.NotifiedOfGroup
	Shown           shown            `json:"shown,omitzero"`        // zero if it follows from the rest
	Probes          []probeMemory    `json:"probes,omitempty"`      // sorted

	keepsTold, keepsToldOfGroup bool // this engine knows better what receivers were told
}

// probeMemory is what is stored of a probe.
type probeMemory struct {
	Kind     probe.Kind    `json:"kind"`
	Name     string        `json:"name,omitempty"`
	Memory   engine.Memory `json:"memory"`
	Cause    cause         `json:"cause,omitzero"`
	Blind    cause         `json:"blind,omitzero"` // why its attempts cannot be made
	Ejection *ejection     `json:"ejection,omitempty"`
}

// of returns the memory of a target, which is empty if there was none.
func (m memories) of(target string) *memory {
	if m[target] == nil {
		m[target] = &memory{Version: version}
	}
	return m[target]
}

// isEmpty reports whether there is nothing to be remembered.
func (t *memory) isEmpty() bool {
	return len(t.Probes)+len(t.Notified)+len(t.NotifiedOfGroup) == 0 && t.Restarts == nil && t.Penalty == nil && t.Shown == (shown{})
}

// follows returns the instance of a target that follows from the memory of its restarts, nil for none.
func follows(target string, m *restart.Memory) probe.Instance {
	if m == nil {
		return restart.Memory{}.Shown(target)
	}
	return m.Shown(target)
}

// causes returns the causes that memories have.
func (m memories) causes() map[probe.ID]cause {
	all := map[probe.ID]cause{}
	for target, t := range m {
		for _, p := range t.Probes {
			if p.Cause != (cause{}) {
				all[p.id(target)] = p.Cause
			}
		}
	}
	return all
}

func (p *probeMemory) id(target string) probe.ID {
	return probe.ID{Target: target, Kind: p.Kind, Name: p.Name}
}

// shown is what engines show of a target, besides what the next owner needs to go on.
type shown struct {
	State    probe.TargetState `json:"state,omitzero"` // one that has lasted since Since; absent for one that follows from the probes
	Since    time.Time         `json:"since,omitzero"`
	Decided  bool              `json:"decided,omitempty"`  // it is known that it is not ready: see engine.Restated
	Instance *probe.Instance   `json:"instance,omitempty"` // absent if it is restart.Memory.Shown
}

// UnmarshalJSON implements json.Unmarshaler. Of a value that is none of this release, since it has more states, nothing is shown.
func (s *shown) UnmarshalJSON(b []byte) error {
	type plain shown
	if json.Unmarshal(b, (*plain)(s)) != nil {
		*s = shown{}
	}
	return nil
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

// ejection is an engine.Ejection as it is stored, but for its probe.
type ejection struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	Detail string    `json:"detail,omitempty"`
}

// ejectionOf returns an ejection to be stored, or as it was stored: bounded, and safe. Times are cut to milliseconds,
// since the engine may round them: what has not changed has the same bytes.
func ejectionOf(since, until time.Time, reason, detail string) *ejection {
	return &ejection{
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

// UnmarshalText implements encoding.TextUnmarshaler: it is bounded and made safe again. It has no time.
func (f *cause) UnmarshalText(b []byte) error {
	reason, detail, _ := strings.Cut(string(b), "\n")
	*f = cause{reason: probe.Reason(probe.OneLine(reason, maxCause)), detail: probe.CleanText(detail, maxCause)}
	return nil
}

// MarshalText implements encoding.TextMarshaler: it is the reason, a newline, and the detail.
func (f cause) MarshalText() ([]byte, error) {
	return []byte(probe.CleanText(string(f.reason)+"\n"+f.detail, maxCause)), nil
}

// isOf reports whether this is about the verdict in a memory. The engine may round times.
func (f cause) isOf(m engine.Memory) bool {
	return f.reason != "" && f.since.Sub(m.Since).Abs() < time.Millisecond
}

// fault returns the cause as the fault of a probe with a memory.
func (f cause) fault(m engine.Memory) engine.Fault {
	outcome := probe.Failure
	if m.State.Verdict == probe.Passing {
		outcome = probe.Warning
	}
	return engine.Fault{Outcome: outcome, Reason: f.reason, Detail: f.detail, At: m.Since}
}

// result returns the result that has made the probe fail, the warning of one that passes, or why it is blind, and false for none
// of these.
func (p *probeMemory) result() (r probe.Result, isKnown bool) {
	switch {
	case p.Blind != (cause{}):
		return probe.Broken(p.Blind.reason, "%s", p.Blind.detail), true
	case p.Cause == (cause{}):
		return r, false
	case p.Memory.State.Verdict == probe.Passing:
		return probe.Warn(p.Cause.reason, "%s", p.Cause.detail), true
	}
	return probe.Fail(p.Cause.reason, "%s", p.Cause.detail), true
}

// encode returns memories as bytes by target, the same for equal ones, and errors for the targets of which
// a part was left out, since it has no form or the memory would have more than coord.MaxMemory bytes.
func (m memories) encode() (values map[string][]byte, incomplete map[string]error) {
	values, incomplete = make(map[string][]byte, len(m)), map[string]error{}
	for target, t := range m {
		if t.isEmpty() {
			continue
		}
		value, err := t.encode()
		if err != nil {
			incomplete[target] = err
		}
		values[target] = value
	}
	return values, incomplete
}

// leaveOut leaves out the parts that JSON has no form of, such as a time after the year 9999, and returns an error that
// names them, or nil.
func (t *memory) leaveOut() (missing error) {
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
	if !isEncodable(t.Shown, "state and instance") {
		t.Shown = shown{}
	}
	t.Probes = slices.DeleteFunc(t.Probes, func(p probeMemory) bool { return !isEncodable(p.Memory, "%v probe %q", p.Kind, p.Name) })
	for i := range t.Probes {
		if p := &t.Probes[i]; !isEncodable(p.Ejection, "ejection by the %v probe %q", p.Kind, p.Name) {
			p.Ejection = nil
		}
	}
	return missing
}

// encode returns the memory as bytes. If these are too many it leaves out what receivers were told, which they may be told
// again, and then probes, which are attempted again, and says so. A restart that was made must not be made again.
func (t *memory) encode() (value []byte, incomplete error) {
	slices.SortFunc(t.Probes, func(a, b probeMemory) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	for i := range t.Probes {
		m := &t.Probes[i].Memory
		m.Since, m.InstanceSince = m.Since.UTC(), m.InstanceSince.UTC()
	}
	if p := t.Penalty; p != nil {
		p.At, p.Since = p.At.UTC().Truncate(time.Millisecond), p.Since.UTC().Truncate(time.Millisecond)
	}
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
		case len(t.Notified)+len(t.NotifiedOfGroup) > 0:
			t.Notified, t.NotifiedOfGroup = nil, nil
		case t.Shown != (shown{}):
			t.Shown = shown{}
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
	t := &memory{}
	if err := json.Unmarshal(b, t); err != nil {
		return fmt.Errorf("the memory is none of this release: %w", err)
	}
	if t.Version != version {
		return fmt.Errorf("the memory has version %d, this release has version %d", t.Version, version)
	}
	for i := range t.Probes {
		p := &t.Probes[i]
		if p.Cause.since = p.Memory.Since; p.Cause.reason == "" {
			p.Cause = cause{}
		}
		if e := p.Ejection; e != nil && p.Memory.State.Verdict == probe.Passing {
			p.Ejection = ejectionOf(e.Since, e.Until, e.Reason, e.Detail)
		} else {
			p.Ejection = nil
		}
	}
	m[target] = t
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
	for _, t := range m {
		if how == forget {
			t.Probes, t.Restarts, t.Penalty, t.Shown = nil, nil, nil, shown{}
		}
		for i := range t.Probes {
			switch p := &t.Probes[i]; {
			case p.Memory.State.Verdict == probe.Failing && p.Kind != probe.Readiness:
				p.Memory, p.Cause = p.Memory.Forgotten(), cause{}
			case how == verify:
				p.Memory = p.Memory.Renewed(p.Kind)
			}
		}
	}
}
