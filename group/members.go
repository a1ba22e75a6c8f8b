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
	Address string            // empty for a target that has none, or does not exist yet
	Port    uint16            // Rule.Port of this target; 0 if it has none
	Labels  map[string]string // shared, do not write
	State   probe.GatewayState
	Since   time.Time    // when State was found to be so; of one that is down since when a probe fails, whichever engine has found that
	Reason  probe.Reason // why it is not ready, if that is known

	// InRotation says that new requests are sent to the member, with a Weight from 1 to
	// MaxWeight, which is 0 otherwise. Beside the State it depends on what the other members
	// are: see Rule.
	InRotation bool
	Weight     int

	ZeroWeight bool // its weight is 0 by Rule.WeightLabel: it gets no requests, and counts for nothing

	absent    bool               // there is no such target
	started   bool               // its instance has
	ejected   bool               // it is down only because gateways have ejected it, or it is damped
	full      int                // its weight when it is ready
	acting    probe.GatewayState // by which it is in rotation: see actingState
	serves    uint64             // version of the View since which it takes requests; 0 if it does not
	slowSince time.Time          // when its slow start began; zero without one
}

// HostPort returns "10.0.0.7:80" or "[fd00::7]:80", or only the address without a Port.
func (m *Member) HostPort() string {
	if m.Port == 0 {
		return m.Address
	}
	return net.JoinHostPort(m.Address, strconv.Itoa(int(m.Port)))
}

// members is a list of members, sorted by name. It never changes: with returns another list,
// which shares the chunks without changes. So a change in a group of 100,000 copies 12 kB, and
// not the list.
type members struct{ chunks [][]*Member } // none is empty

// maxChunk bounds the members of a chunk, which a change copies.
const maxChunk = 256

// find returns where the member of a name is, or would be: in which chunk, and where in it.
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

// get returns the member of a name, or nil.
func (l members) get(name string) *Member {
	chunk, at, found := l.find(name)
	if !found {
		return nil
	}
	return l.chunks[chunk][at]
}

// with returns the list with changes by name: a member in the place of the one of its name, if
// there is one, or nil for none.
func (l members) with(changes map[string]*Member) members {
	names := slices.Sorted(maps.Keys(changes))
	out := make([][]*Member, 0, len(l.chunks)+len(names)/maxChunk+1)
	for i, chunk := range l.chunks {
		n := len(names) // what sorts after all members belongs to the last chunk
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

// merge returns the members of a chunk with the changes of names, which are sorted.
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

// appendChunks appends members to a list, in chunks of about the same size.
func appendChunks(to [][]*Member, some []*Member) [][]*Member {
	for parts := (len(some) + maxChunk - 1) / maxChunk; parts > 0; parts-- {
		n := len(some) / parts
		to = append(to, slices.Clip(some[:n]))
		some = some[n:]
	}
	return to
}

func compareName(m *Member, name string) int { return strings.Compare(m.Target, name) }

// from yields the members whose names sort after a name.
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

// update returns the list with each member replaced by what change returns for it. Chunks
// without changes stay shared.
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

// draft is the list of members that the next View has. What has changed is kept apart until the
// list is needed, so that a thousand changes make one list, too.
type draft struct {
	list    members
	changed map[string]*Member // since list was made; nil for one that was removed
}

// get returns the member of a name, or nil.
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

// update replaces each member by what change returns for it.
func (d *draft) update(change func(*Member) *Member) { d.list = d.current().update(change) }

// current returns the list of all members.
func (d *draft) current() members {
	if len(d.changed) > 0 {
		d.list, d.changed = d.list.with(d.changed), nil
	}
	return d.list
}
