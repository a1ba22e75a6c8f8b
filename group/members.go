package group

import (
	"iter"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Member is a target in a group.
type Member struct {
	Target  string
	Address string            // empty if the target has no address, or does not exist yet
	Port    uint16            // Rule.Port of this target; 0 if it has no such port
	Labels  map[string]string // shared; must not be modified
	State   probe.GatewayState
	Since   time.Time    // when State was determined; if a failing probe made the member down, since when it fails in any engine
	Reason  probe.Reason // why the member is not ready, if known

	// InRotation reports whether new requests are sent to the member. Its Weight is then 1 to MaxWeight, otherwise 0. Both
	// depend on the State of the member and on the other members: see Rule.
	InRotation bool
	Weight     int

	ZeroWeight bool // its weight is 0 by Rule.WeightLabel: it gets no requests and does not count

	absent    bool               // no such target exists
	started   bool               // its instance has started
	ejected   bool               // it is down only because gateways have ejected it or because it is damped
	full      int                // weight when it is ready
	acting    probe.GatewayState // the state that decides whether it is in rotation: see actingState
	serves    uint64             // version of the View since which it takes requests; 0 if it takes none
	slowSince time.Time          // when its slow start began; zero if it is not in one
}

// HostPort returns "10.0.0.7:80" or "[fd00::7]:80", or only the address if Port is 0.
func (m *Member) HostPort() string {
	if m.Port == 0 {
		return m.Address
	}
	return net.JoinHostPort(m.Address, strconv.Itoa(int(m.Port)))
}

// members is a list of members, sorted by name. It is immutable: with returns a new list that shares the unchanged chunks.
// So a change in a group of 100,000 copies 12 kB instead of the whole list.
type members struct{ chunks [][]*Member } // no chunk is empty

// maxChunk is the maximum number of members in a chunk, which is copied by a change.
const maxChunk = 256

// find returns the chunk and the index in it at which the member with a name is, or would be inserted.
func (l members) find(name string) (chunk, at int, found bool) {
	chunk, _ = slices.BinarySearchFunc(l.chunks, name, func(c []*Member, name string) int {
		return compareName(c[len(c)-1], name)
	})
	if chunk == len(l.chunks) {
		return chunk, 0, false
	}
	at, found = slices.BinarySearchFunc(l.chunks[chunk], name, compareName)
	return chunk, at, found
}

// get returns the member with a name, or nil.
func (l members) get(name string) *Member {
	chunk, at, found := l.find(name)
	if !found {
		return nil
	}
	return l.chunks[chunk][at]
}

// with returns the list with changes applied. changes maps a name to the member that is added or that replaces the
// present one, or to nil to remove it.
func (l members) with(changes map[string]*Member) members {
	names := slices.Sorted(maps.Keys(changes))
	out := make([][]*Member, 0, len(l.chunks)+len(names)/maxChunk+1)
	for i, chunk := range l.chunks {
		n := len(names) // names that sort after all members belong to the last chunk
		if i < len(l.chunks)-1 {
			next := l.chunks[i+1][0].Target
			n, _ = slices.BinarySearch(names, next)
		}
		if n == 0 {
			out = append(out, chunk)
			continue
		}
		out = appendChunks(out, merge(chunk, names[:n], changes))
		names = names[n:]
	}
	if len(l.chunks) == 0 {
		out = appendChunks(out, merge(nil, names, changes))
	}
	return members{out}
}

// merge returns the members of a chunk with the changes to names, which are sorted, applied.
func merge(chunk []*Member, names []string, changes map[string]*Member) []*Member {
	merged := make([]*Member, 0, len(chunk)+len(names))
	for _, name := range names {
		at, found := slices.BinarySearchFunc(chunk, name, compareName)
		merged = append(merged, chunk[:at]...)
		if chunk = chunk[at:]; found {
			chunk = chunk[1:]
		}
		if m := changes[name]; m != nil {
			merged = append(merged, m)
		}
	}
	return append(merged, chunk...)
}

// appendChunks appends members to a list in chunks of about equal size.
func appendChunks(to [][]*Member, some []*Member) [][]*Member {
	for parts := (len(some) + maxChunk - 1) / maxChunk; parts > 0; parts-- {
		n := len(some) / parts
		to = append(to, slices.Clip(some[:n]))
		some = some[n:]
	}
	return to
}

func compareName(m *Member, name string) int { return strings.Compare(m.Target, name) }

// from yields the members whose names sort after a given name.
func (l members) from(after string) iter.Seq[*Member] {
	return func(yield func(*Member) bool) {
		chunk, at, found := l.find(after)
		if found {
			at++
		}
		for ; chunk < len(l.chunks); chunk, at = chunk+1, 0 {
			for _, m := range l.chunks[chunk][at:] {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// update returns the list with each member replaced by the result of change. Unchanged chunks stay shared.
func (l members) update(change func(*Member) *Member) members {
	chunks := slices.Clone(l.chunks)
	for i, chunk := range chunks {
		var changed []*Member
		for j, m := range chunk {
			if n := change(m); n != m {
				if changed == nil {
					changed = slices.Clone(chunk)
				}
				changed[j] = n
			}
		}
		if changed != nil {
			chunks[i] = changed
		}
	}
	return members{chunks}
}

// draft is the member list of the next View. Changes are collected until the list is needed, so that even a
// thousand changes make one new list.
type draft struct {
	list    members
	changed map[string]*Member // changes to list, by name; nil for a removed member
}

// get returns the member with a name, or nil.
func (d *draft) get(name string) *Member {
	if m, changed := d.changed[name]; changed {
		return m
	}
	return d.list.get(name)
}

func (d *draft) put(m *Member) { d.change(m.Target, m) }

func (d *draft) remove(name string) { d.change(name, nil) }

func (d *draft) change(name string, m *Member) {
	if d.changed == nil {
		d.changed = map[string]*Member{}
	}
	d.changed[name] = m
}

// update replaces each member by the result of change.
func (d *draft) update(change func(*Member) *Member) { d.list = d.current().update(change) }

// current returns the list of all members.
func (d *draft) current() members {
	if len(d.changed) > 0 {
		d.list, d.changed = d.list.with(d.changed), nil
	}
	return d.list
}
