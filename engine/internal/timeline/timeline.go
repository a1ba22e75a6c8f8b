// Package timeline orders keys by due time. It is a plain data structure without goroutines, locks or a clock: the caller
// supplies the current time.
package timeline

import "math"

// Timeline is a 4-ary min-heap of due times with one entry per key. A due time is in nanoseconds on a clock of the caller's
// choice, and may be negative. Of keys with equal due times the lowest is first, so that the order is deterministic.
//
// Set and Remove take O(log n), the other methods O(1). Keys are slot numbers: memory use grows with the highest key ever set, 4
// bytes per key, and with the maximum number of keys held at once, 16 bytes per key.
//
// The zero Timeline is empty and ready for use. It is not safe for concurrent use by multiple goroutines.
type Timeline struct {
	heap []entry
	pos  []uint32 // pos[key] is key's index in heap plus one; 0 means absent
}

type entry struct {
	due int64
	key uint32
}

func (e entry) before(f entry) bool {
	return e.due < f.due || e.due == f.due && e.key < f.key
}

// Set sets the due time of key, and replaces an existing one.
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

// Remove removes key. It does nothing if key has no due time.
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

// First returns the key that is due first and its due time; ok is false if the Timeline is empty.
func (tl *Timeline) First() (key uint32, due int64, ok bool) {
	if len(tl.heap) == 0 {
		return 0, 0, false
	}
	return tl.heap[0].key, tl.heap[0].due, true
}

// Next returns the first due time, or math.MaxInt64 if the Timeline is empty.
func (tl *Timeline) Next() int64 {
	if len(tl.heap) == 0 {
		return math.MaxInt64
	}
	return tl.heap[0].due
}

// Due returns the due time of key; ok is false if it has none.
func (tl *Timeline) Due(key uint32) (due int64, ok bool) {
	if int(key) >= len(tl.pos) || tl.pos[key] == 0 {
		return 0, false
	}
	return tl.heap[tl.pos[key]-1].due, true
}

// settle moves e to its place on the path through index i, whose entry it replaces.
func (tl *Timeline) settle(i int, e entry) {
	i = tl.rise(i, e)
	i = tl.sink(i, e)
	tl.put(i, e)
}

// rise moves ancestors of i that sort after e down, and returns the index that becomes free.
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

// sink moves descendants of i that sort before e up, and returns the index that becomes free.
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

// arity is the number of children of an entry. Four fit into one cache line, so the heap is half as deep as a binary one with the
// same number of cache misses per level.
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
