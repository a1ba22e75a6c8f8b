package fleet

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// The memory of a target as bytes: a version, and an entry for its restarts, if it has a driver, for each of its
// probes, for its penalty, if it has one, and for what receivers were told about it, and about a group of its name, in this
// order:
//
//	uint8   what: whatRestart, whatPenalty, whatTold, whatToldOfGroup, the kind of a probe, or whatCause or whatEjection and the kind of a probe
//	string  name, value: each a uvarint and so many bytes
//
// An engine leaves out the entries that it does not know, which a later release may write.
const version = 2

// whatRestart marks an entry whose value is a restart.Memory in JSON, and whose name is empty.
const whatRestart = 16

// whatPenalty marks an entry whose value is a verdict.Penalty in JSON, and whose name is empty.
const whatPenalty = 17

// whatTold marks an entry whose value is that of Notices.Told, and whose name is empty.
const whatTold = 18

// whatToldOfGroup marks an entry whose value is that of Notices.ToldOfGroup, and whose name is empty.
const whatToldOfGroup = 19

// whatEjection, added to the kind of a probe, marks an entry whose value is an ejection in JSON.
const whatEjection = 64

// whatCause, added to the kind of a probe, marks an entry whose value says why the probe fails, or what it warns of while it
// passes: the reason, a newline, and the detail, in at most maxCause bytes. Etcd keeps each change of a memory for some time, so these are few.
const (
	whatCause = 32
	maxCause  = 120
)

var errTruncated = errors.New("the memory is truncated")

// memories are what the next owner of targets has to remember.
type memories struct {
	probes    map[probe.ID]engine.Memory
	restarts  map[string]restart.Memory  // by target
	penalties map[string]verdict.Penalty // by target
	told      map[string][]byte          // by target; nil for one of which receivers know no trouble

	toldOfGroups map[string][]byte // by group; nil for one of which receivers know no trouble

	// What follows is not needed, but shown by other engines.
	causes    map[probe.ID]cause           // of probes that fail, and of those that pass with a warning
	ejections map[probe.ID]engine.Ejection // of probes that pass
}

func newMemories() memories {
	return memories{
		map[probe.ID]engine.Memory{}, map[string]restart.Memory{}, map[string]verdict.Penalty{}, map[string][]byte{}, map[string][]byte{}, map[probe.ID]cause{}, map[probe.ID]engine.Ejection{},
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

// cause is why a probe fails, as its owner has found when it began to: later attempts may have other reasons, which
// are no transitions. Of a probe that passes it is the warning of the latest attempt.
type cause struct {
	since  time.Time // when the verdict was published
	reason probe.Reason
	detail string
}

// parseCause returns what the value of an entry says, bounded and made safe again, without its time.
func parseCause(value string) cause {
	reason, detail, _ := strings.Cut(value, "\n")
	return cause{time.Time{}, probe.Reason(probe.OneLine(reason, maxCause)), probe.CleanText(detail, maxCause)}
}

// String returns the value of an entry.
func (f cause) String() string {
	return probe.CleanText(string(f.reason)+"\n"+f.detail, maxCause)
}

// explains reports whether this is about a probe with that verdict.
func (f cause) explains(v probe.Verdict) bool {
	return f.reason != "" && (v == probe.Failing || v == probe.Passing)
}

// isOf reports whether this is about the verdict in a memory. The engine may round times.
func (f cause) isOf(m engine.Memory) bool {
	return f.explains(m.State.Verdict) && f.since.Sub(m.Since).Abs() < time.Millisecond
}

// results returns the results that have made probes fail, and the warnings of those that pass.
func (m memories) results() map[probe.ID]probe.Result {
	all := make(map[probe.ID]probe.Result, len(m.causes))
	for id, f := range m.causes {
		if m.probes[id].State.Verdict == probe.Passing {
			all[id] = probe.Warn(f.reason, "%s", f.detail)
			continue
		}
		all[id] = probe.Fail(f.reason, "%s", f.detail)
	}
	return all
}

// entry is a part of a memory as bytes.
type entry struct {
	what  byte
	name  string
	value []byte
}

// rank orders entries: what comes first is kept if there is too much. A restart that was made must not be
// made again; a probe that is forgotten is attempted again; a receiver may be told again.
func (e entry) rank() byte {
	switch e.what {
	case whatRestart:
		return 0
	case whatTold, whatToldOfGroup:
		return math.MaxUint8
	}
	return e.what
}

// encode returns memories as bytes by target, the same for equal ones, and errors for the targets of which
// a part was left out, since it has no form or the memory would have more than coord.MaxMemory bytes.
func (m memories) encode() (values map[string][]byte, incomplete map[string]error) {
	all, incomplete := map[string][]entry{}, map[string]error{}
	for id, memory := range m.probes {
		value, err := memory.MarshalBinary()
		if err != nil {
			incomplete[id.Target] = fmt.Errorf("probe %q: %w", id, err)
			continue
		}
		all[id.Target] = append(all[id.Target], entry{byte(id.Kind), id.Name, value})
	}
	for id, e := range m.ejections {
		value, err := json.Marshal(ejectionOf(e.Since, e.Until, string(e.Reason), e.Detail))
		if err != nil {
			incomplete[id.Target] = fmt.Errorf("ejection by probe %q: %w", id, err)
			continue
		}
		all[id.Target] = append(all[id.Target], entry{whatEjection + byte(id.Kind), id.Name, value})
	}
	for target, p := range m.penalties {
		p.At, p.Since = p.At.UTC().Truncate(time.Millisecond), p.Since.UTC().Truncate(time.Millisecond)
		value, err := json.Marshal(p)
		if err != nil {
			incomplete[target] = fmt.Errorf("penalty: %w", err)
			continue
		}
		all[target] = append(all[target], entry{whatPenalty, "", value})
	}
	for target, told := range m.told {
		if told != nil {
			all[target] = append(all[target], entry{whatTold, "", told})
		}
	}
	for group, told := range m.toldOfGroups {
		if told != nil {
			all[group] = append(all[group], entry{whatToldOfGroup, "", told})
		}
	}
	for id, f := range m.causes {
		all[id.Target] = append(all[id.Target], entry{whatCause + byte(id.Kind), id.Name, []byte(f.String())})
	}
	for target, memory := range m.restarts {
		value, err := json.Marshal(memory)
		if err != nil {
			incomplete[target] = fmt.Errorf("restarts: %w", err)
			continue
		}
		all[target] = append(all[target], entry{whatRestart, "", value})
	}
	values = make(map[string][]byte, len(all))
	for target, entries := range all {
		value, left := join(entries)
		if left > 0 {
			incomplete[target] = fmt.Errorf("%d of %d parts are left out of what has to have at most %d bytes", left, len(entries), coord.MaxMemory)
		}
		values[target] = value
	}
	return values, incomplete
}

// join returns the entries of a target as bytes, and how many were left out.
func join(entries []entry) (b []byte, left int) {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.what, b.what), cmp.Compare(a.name, b.name))
	})
	b = []byte{version}
	for _, e := range entries {
		before := len(b)
		b = append(b, e.what)
		for _, s := range [][]byte{[]byte(e.name), e.value} {
			b = binary.AppendUvarint(b, uint64(len(s)))
			b = append(b, s...)
		}
		if len(b) > coord.MaxMemory {
			b, left = b[:before], left+1
		}
	}
	return b, left
}

// add adds the memory of a target that encode has made bytes of, or nothing if it returns an error.
func (m memories) add(target string, b []byte) error {
	switch {
	case len(b) == 0:
		return errTruncated
	case b[0] != version:
		return fmt.Errorf("the memory has version %d, this release has version %d", b[0], version)
	}
	read := newMemories()
	for b = b[1:]; len(b) > 0; {
		e := entry{what: b[0]}
		var parts [2][]byte
		b = b[1:]
		for i := range parts {
			n, size := binary.Uvarint(b)
			if size <= 0 || n > uint64(len(b)-size) {
				return errTruncated
			}
			parts[i], b = b[size:size+int(n)], b[size+int(n):]
		}
		e.name, e.value = string(parts[0]), parts[1]
		if err := read.addEntry(target, e); err != nil {
			return err
		}
	}
	for id, memory := range read.probes {
		m.probes[id] = memory
		if f := read.causes[id]; f.explains(memory.State.Verdict) {
			f.since = memory.Since
			m.causes[id] = f
		}
	}
	for id, e := range read.ejections {
		if read.probes[id].State.Verdict == probe.Passing {
			m.ejections[id] = e
		}
	}
	maps.Copy(m.restarts, read.restarts)
	maps.Copy(m.penalties, read.penalties)
	m.told[target] = read.told[target]
	m.toldOfGroups[target] = read.toldOfGroups[target]
	return nil
}

// addEntry decodes an entry, unless it is of a later release.
func (m memories) addEntry(target string, e entry) error {
	switch {
	case e.what == whatRestart:
		var memory restart.Memory
		if err := json.Unmarshal(e.value, &memory); err != nil {
			return fmt.Errorf("restarts: %w", err)
		}
		m.restarts[target] = memory
	case e.what == whatPenalty:
		var p verdict.Penalty
		if err := json.Unmarshal(e.value, &p); err != nil {
			return fmt.Errorf("penalty: %w", err)
		}
		m.penalties[target] = p
	case e.what == whatTold:
		m.told[target] = e.value
	case e.what == whatToldOfGroup:
		m.toldOfGroups[target] = e.value
	case e.what < whatRestart:
		id := probe.ID{Target: target, Kind: probe.Kind(e.what), Name: e.name}
		var memory engine.Memory
		if err := memory.UnmarshalBinary(e.value); err != nil {
			return fmt.Errorf("probe %q: %w", id, err)
		}
		m.probes[id] = memory
	case e.what >= whatEjection && e.what < 2*whatEjection:
		id := probe.ID{Target: target, Kind: probe.Kind(e.what - whatEjection), Name: e.name}
		var of ejection
		if err := json.Unmarshal(e.value, &of); err != nil {
			return fmt.Errorf("ejection by probe %q: %w", id, err)
		}
		of = ejectionOf(of.Since, of.Until, of.Reason, of.Detail)
		m.ejections[id] = engine.Ejection{Probe: id, Since: of.Since, Until: of.Until, Reason: probe.Reason(of.Reason), Detail: of.Detail}
	case e.what >= whatCause && e.what < 2*whatCause:
		m.causes[probe.ID{Target: target, Kind: probe.Kind(e.what - whatCause), Name: e.name}] = parseCause(string(e.value))
	}
	return nil
}

// Resume says what becomes of memories when all engines were stopped, not for long.
type Resume int

// The values of Resume.
const (
	Trust  Resume = iota // probes and restarts go on
	Verify               // probes keep their verdicts, and are attempted at once
	Forget               // all begin anew
)

// resume changes memories to those with which an engine goes on that has not seen the owner before alive. A
// cause is not among them that could restart a target, for then it would without an attempt: how long
// all engines were stopped is not known when the store was stopped with them.
func (m memories) resume(how Resume) {
	if how == Forget {
		clear(m.probes)
		clear(m.restarts)
		clear(m.penalties)
	}
	for id, memory := range m.probes {
		switch {
		case memory.State.Verdict == probe.Failing && id.Kind != probe.Readiness:
			delete(m.probes, id)
		case how == Verify:
			m.probes[id] = memory.Renewed(id.Kind)
		}
	}
}
