// Package timeline orders what is due. It is a plain data structure: no
// goroutine, no lock and no clock; the caller brings now.
package timeline

import "math"

// Timeline is a 4-ary min-heap of due times with one entry for each key. A due
// time is in nanoseconds on a clock of the caller's choice; negative ones are
// fine. Of keys with equal due times the lowest is first, so that the order is
// deterministic.
//
// Set and Remove take O(log n), the others O(1). Keys are slot numbers: the
// memory used grows with the highest key ever set, 4 bytes for each, and with
// the most keys ever held at once, 16 bytes for each.
//
// The zero Timeline is empty and ready for use. It is not safe for concurrent
// use by multiple goroutines.
type Timeline struct {
	heap []entry
	pos  []uint32 // pos[key] is one more than key's index in heap; 0 means absent
}

type entry struct {
	due int64
	key uint32
}

func (e entry) before(f entry) bool {
	return e.due < f.due || e.due == f.due && e.key < f.key
}

// Set makes key due at due, whether or not it had a due time before.
func (tl *Timeline) Set(key uint32, due int64) {
	if int(key) >= len(tl.pos) {
		tl.pos = append(tl.pos, make([]uint32, int(key)+1-len(tl.pos))...)
	}
	i := int(tl.pos[key]) - 1
	if i < 0 {
		i = len(tl.heap)
		tl.heap = append(tl.heap, entry{})
	}
	tl.settle(i, entry{due, key})
}

// Remove forgets key. It does nothing when key has no due time.
func (tl *Timeline) Remove(key uint32) {
	if int(key) >= len(tl.pos) || tl.pos[key] == 0 {
		return
	}
	i, last := int(tl.pos[key])-1, len(tl.heap)-1
	moved := tl.heap[last]
	tl.heap = tl.heap[:last]
	tl.pos[key] = 0
	if i < last {
		tl.settle(i, moved)
	}
}

// First returns the key that is due first and its due time; ok is false when there
// is none.
func (tl *Timeline) First() (key uint32, due int64, ok bool) {
	if len(tl.heap) == 0 {
		return 0, 0, false
	}
	return tl.heap[0].key, tl.heap[0].due, true
}

// Next returns when the key that is due first is due; math.MaxInt64 when there is none.
func (tl *Timeline) Next() int64 {
	if len(tl.heap) == 0 {
		return math.MaxInt64
	}
	return tl.heap[0].due
}

// Due returns when key is due; ok is false when it has no due time.
func (tl *Timeline) Due(key uint32) (due int64, ok bool) {
	if int(key) >= len(tl.pos) || tl.pos[key] == 0 {
		return 0, false
	}
	return tl.heap[tl.pos[key]-1].due, true
}

// settle puts e where it belongs on the path through index i, whose entry it
// replaces.
func (tl *Timeline) settle(i int, e entry) {
	i = tl.rise(i, e)
	i = tl.sink(i, e)
	tl.put(i, e)
}

// rise moves the ancestors of i that come after e down, and returns the index
// that this leaves free.
func (tl *Timeline) rise(i int, e entry) int {
	for i > 0 {
		parent := (i - 1) / arity
		if !e.before(tl.heap[parent]) {
			break
		}
		tl.put(i, tl.heap[parent])
		i = parent
	}
	return i
}

// sink moves the descendants of i that come before e up, and returns the index
// that this leaves free.
func (tl *Timeline) sink(i int, e entry) int {
	for {
		child := tl.firstChild(i)
		if child < 0 || !tl.heap[child].before(e) {
			return i
		}
		tl.put(i, tl.heap[child])
		i = child
	}
}

// arity is how many children an entry has. Four fit into one cache line, which
// makes the heap half as deep as a binary one for the same number of misses at
// each level.
const arity = 4

// firstChild returns the index of the child of i that is due first, or -1.
func (tl *Timeline) firstChild(i int) int {
	begin := arity*i + 1
	if begin >= len(tl.heap) {
		return -1
	}
	first := begin
	for c := begin + 1; c < min(begin+arity, len(tl.heap)); c++ {
		if tl.heap[c].before(tl.heap[first]) {
			first = c
		}
	}
	return first
}

func (tl *Timeline) put(i int, e entry) {
	tl.heap[i] = e
	tl.pos[e.key] = uint32(i) + 1
}
