package group

import (
	"iter"
	"slices"
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
	State   State
	Since   time.Time    // when State was found to be so
	Reason  probe.Reason // why it is not ready, if that is known

	// InRotation says that new requests are sent to the member, with a Weight from 1 to
	// MaxWeight, which is 0 otherwise. Beside the State it depends on what the other members
	// are: see Rule.
	InRotation bool
	Weight     int

	absent    bool      // there is no such target
	full      int       // its weight when it is ready
	acting    State     // by which it is in rotation: see actingState
	slowSince time.Time // when its slow start began; zero without one
}

// members is a list of members, sorted by name. It never changes: put and remove return
// another list, which shares all but a chunk of members with this one. So a change in a
// group of 100,000 copies 12 kB, and not the list.
type members struct{ chunks [][]*Member } // none is empty

// maxChunk bounds the members of a chunk, which a change copies.
const maxChunk = 256

// find returns where the member of a name is, or would be: in which chunk, and where in it.
func (l members) find(name string) (chunk, at int, found bool) {
	chunk, _ = slices.BinarySearchFunc(l.chunks, name, func(c []*Member, name string) int {
		return strings.Compare(c[len(c)-1].Target, name)
	})
	if chunk == len(l.chunks) {
		return chunk, 0, false
	}
	at, found = slices.BinarySearchFunc(l.chunks[chunk], name, func(m *Member, name string) int { return strings.Compare(m.Target, name) })
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

// put returns the list with a member, in the place of the one with its name if there is
// one.
func (l members) put(m *Member) members {
	chunk, at, found := l.find(m.Target)
	if last := len(l.chunks) - 1; chunk > last { // after all others
		if last < 0 || len(l.chunks[last]) == maxChunk {
			return members{append(slices.Clip(l.chunks), []*Member{m})}
		}
		chunk, at = last, len(l.chunks[last])
	}
	var changed []*Member
	if found {
		changed = slices.Clone(l.chunks[chunk])
		changed[at] = m
	} else {
		changed = slices.Concat(l.chunks[chunk][:at], []*Member{m}, l.chunks[chunk][at:])
	}
	if half := len(changed) / 2; len(changed) > maxChunk {
		return l.replace(chunk, slices.Clip(changed[:half]), changed[half:])
	}
	return l.replace(chunk, changed)
}

// remove returns the list without the member of a name, which it has.
func (l members) remove(name string) members {
	chunk, at, _ := l.find(name)
	rest := slices.Concat(l.chunks[chunk][:at], l.chunks[chunk][at+1:])
	if len(rest) == 0 {
		return l.replace(chunk)
	}
	return l.replace(chunk, rest)
}

// replace returns the list with other chunks in the place of one.
func (l members) replace(chunk int, by ...[]*Member) members {
	return members{slices.Concat(l.chunks[:chunk], by, l.chunks[chunk+1:])}
}

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
