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

// version is the version of a memory. A later release that only adds fields keeps it.
const version = 3

// memories has, by target, the memories that the next owner needs.
type memories map[string]*memory

// memory is the stored JSON of a target and of the group of the same name. Some of it is only for display by other
// engines.
type memory struct {
	Version         int              `json:"version"`
	Restarts        *restart.Memory  `json:"restarts,omitempty"`
	Penalty         *verdict.Penalty `json:"penalty,omitempty"`
	Notified        []byte           `json:"told,omitempty"`        // see Notices.Notified; nil for a target about which receivers know no trouble
	NotifiedOfGroup []byte           `json:"toldOfGroup,omitempty"` // see Notices.NotifiedOfGroup
	Shown           shown            `json:"shown,omitzero"`        // zero if it can be derived from the rest
	Probes          []probeMemory    `json:"probes,omitempty"`      // sorted

	keepsTold, keepsToldOfGroup bool // this engine's own record of the notices is newer
}

// probeMemory is the stored memory of a probe.
type probeMemory struct {
	Kind     probe.Kind    `json:"kind"`
	Name     string        `json:"name,omitempty"`
	Memory   engine.Memory `json:"memory"`
	Cause    cause         `json:"cause,omitzero"`
	Blind    cause         `json:"blind,omitzero"` // why its attempts cannot be made
	Ejection *ejection     `json:"ejection,omitempty"`
}

// of returns the memory of a target, and adds an empty one if there is none.
func (m memories) of(target string) *memory {
	if m[target] == nil {
		m[target] = &memory{Version: version}
	}
	return m[target]
}

// isEmpty reports whether the memory has nothing to store.
func (t *memory) isEmpty() bool {
	return len(t.Probes)+len(t.Notified)+len(t.NotifiedOfGroup) == 0 && t.Restarts == nil && t.Penalty == nil && t.Shown == (shown{})
}

// follows returns the instance of a target as derived from the memory of its restarts; m may be nil.
func follows(target string, m *restart.Memory) probe.Instance {
	if m == nil {
		return restart.Memory{}.Shown(target)
	}
	return m.Shown(target)
}

// causes returns the causes in memories.
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

// shown is the part of a memory that engines display and that the next owner does not need.
type shown struct {
	State    probe.TargetState `json:"state,omitzero"` // a state that has lasted since Since; absent if it follows from the probes
	Since    time.Time         `json:"since,omitzero"`
	Decided  bool              `json:"decided,omitempty"`  // the target is known not to be ready: see engine.Restated
	Instance *probe.Instance   `json:"instance,omitempty"` // absent if it equals restart.Memory.Shown
}

// UnmarshalJSON implements json.Unmarshaler. It ignores a value that this release cannot read, such as one with a new
// state.
func (s *shown) UnmarshalJSON(b []byte) error {
	type plain shown
	if json.Unmarshal(b, (*plain)(s)) != nil {
		*s = shown{}
	}
	return nil
}

// shownInstance returns an instance to be stored, without its target and ID, or nil if it can be derived from the memory
// of its restarts.
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

// instance returns the stored instance, completed by the one that follows from the memory of the restarts.
func (s shown) instance(follows probe.Instance) probe.Instance {
	if s.Instance == nil {
		return follows
	}
	in := bounded(*s.Instance)
	in.Target, in.ID, in.Detail = follows.Target, follows.ID, cmp.Or(in.Detail, follows.Detail)
	return *in
}

// bounded returns an instance whose texts are bounded and sanitized.
func bounded(in probe.Instance) *probe.Instance {
	in.Reason, in.Detail = probe.Reason(probe.OneLine(string(in.Reason), maxCause)), probe.CleanText(in.Detail, probe.MaxDetail)
	return &in
}

// maxCause bounds the texts of a cause and of an ejection, in bytes. It is small since etcd keeps each change of a
// memory for some time.
const maxCause = 120

// ejection is the stored form of an engine.Ejection, without its probe.
type ejection struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	Detail string    `json:"detail,omitempty"`
}

// ejectionOf returns an ejection to be stored, or one that was stored, with bounded and sanitized texts. It truncates
// times to milliseconds, since the engine may round them and an unchanged ejection must have the same bytes.
func ejectionOf(since, until time.Time, reason, detail string) *ejection {
	return &ejection{
		since.UTC().Truncate(time.Millisecond), until.UTC().Truncate(time.Millisecond),
		probe.OneLine(reason, maxCause), probe.CleanText(detail, maxCause),
	}
}

// cause is why a probe fails, as its owner found when the probe began to fail or when the reason changed; the details of
// later attempts are not stored. For a probe that passes it is the warning of the latest attempt.
type cause struct {
	since  time.Time // when the verdict was published
	reason probe.Reason
	detail string
}

// UnmarshalText implements encoding.TextUnmarshaler. It bounds and sanitizes the texts again, and does not set since.
func (f *cause) UnmarshalText(b []byte) error {
	reason, detail, _ := strings.Cut(string(b), "\n")
	*f = cause{reason: probe.Reason(probe.OneLine(reason, maxCause)), detail: probe.CleanText(detail, maxCause)}
	return nil
}

// MarshalText implements encoding.TextMarshaler. The text is the reason, a newline, and the detail.
func (f cause) MarshalText() ([]byte, error) {
	return []byte(probe.CleanText(string(f.reason)+"\n"+f.detail, maxCause)), nil
}

// isOf reports whether the cause is about the verdict in a memory. It allows for times that the engine has rounded.
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

// result returns the result that made the probe fail, the warning of a probe that passes, or why it is blind; false if
// there is none of these.
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

// encode returns memories as bytes by target, equal ones for equal memories. It also returns errors for the targets
// whose memory is incomplete, since a part cannot be encoded or the memory would exceed coord.MaxMemory bytes.
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

// leaveOut removes the parts that JSON cannot encode, such as a time after the year 9999, and returns an error that
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

// encode returns the memory as bytes. If these exceed coord.MaxMemory, it leaves out first the notices, which receivers
// may then get again, then the shown state, then probes, which are attempted again, and returns an error that lists
// them. Restarts come last, since a restart must not be repeated.
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
	e.SetEscapeHTML(false) // it lengthens texts, whose lengths are bounded
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
		cut = fmt.Errorf("%d of %d probes and the record of notices are left out: the limit is %d bytes", probes-len(t.Probes), probes, coord.MaxMemory)
	}
}

// add adds the memory of a target from the bytes that encode returned. If it returns an error, it adds nothing.
func (m memories) add(target string, b []byte) error {
	t := &memory{}
	if err := json.Unmarshal(b, t); err != nil {
		return fmt.Errorf("the memory was not written by this release: %w", err)
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

// Resume is how memories are used after all engines were stopped for a short time.
type Resume string

// The values of Resume. The zero value means trust.
const (
	trust  Resume = "trust"  // probes and restarts resume
	verify Resume = "verify" // probes keep their verdicts, and are attempted immediately
	forget Resume = "forget" // everything starts afresh
)

// resume changes memories to those from which an engine resumes that has not seen the previous owner alive. It removes
// causes that could restart a target without a new attempt: if the store was stopped together with the engines, nobody
// knows for how long.
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
