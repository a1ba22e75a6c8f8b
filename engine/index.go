package engine

import (
	"slices"
	"strings"
)

// index has targets sorted by name, in chunks, so that adding or removing a target moves few others, and the cost of a walk from
// any name is proportional to the targets visited. With many targets, it needs 8 to 16 bytes for each.
type index struct {
	chunks [][]*target // sorted; none is empty
	count  int         // number of targets
}

// maxIndexChunk bounds the number of targets that are moved when one is added or removed.
const maxIndexChunk = 512

// position is the position of a target in an index.
type position struct{ chunk, at int }

// after returns the position of the first target whose name sorts after name. If there is none, the position is past the last
// chunk.
func (x *index) after(name string) position {
	p := x.find(name)
	if p.chunk < len(x.chunks) && x.chunks[p.chunk][p.at].name == name {
		if p.at++; p.at == len(x.chunks[p.chunk]) {
			p = position{chunk: p.chunk + 1}
		}
	}
	return p
}

// find returns the position of the first target whose name equals name or sorts after it.
func (x *index) find(name string) position {
	chunk, _ := slices.BinarySearchFunc(x.chunks, name, func(c []*target, name string) int {
		return strings.Compare(c[len(c)-1].name, name)
	})
	if chunk == len(x.chunks) {
		return position{chunk: chunk}
	}
	at, _ := slices.BinarySearchFunc(x.chunks[chunk], name, func(t *target, name string) int {
		return strings.Compare(t.name, name)
	})
	return position{chunk, at}
}

// newChunk returns a chunk with the given targets and capacity for maxIndexChunk+1, after which insert splits it.
func newChunk(some ...*target) []*target {
	return append(make([]*target, 0, maxIndexChunk+1), some...)
}

// insert adds a target. Its name must not be in the index yet.
func (x *index) insert(t *target) {
	x.count++
	p := x.find(t.name)
	if last := len(x.chunks) - 1; p.chunk > last { // sorts after all others
		if last < 0 || len(x.chunks[last]) == maxIndexChunk {
			x.chunks = append(x.chunks, newChunk(t))
			return
		}
		p = position{last, len(x.chunks[last])}
	}
	c := slices.Insert(x.chunks[p.chunk], p.at, t)
	if len(c) > maxIndexChunk {
		half := len(c) / 2
		x.chunks = slices.Insert(x.chunks, p.chunk+1, newChunk(c[half:]...))
		clear(c[half:])
		c = c[:half]
	}
	x.chunks[p.chunk] = c
}

// remove removes the target with the given name.
func (x *index) remove(name string) {
	p := x.find(name)
	if p.chunk == len(x.chunks) || x.chunks[p.chunk][p.at].name != name {
		return
	}
	x.count--
	x.chunks[p.chunk] = slices.Delete(x.chunks[p.chunk], p.at, p.at+1)
	x.merge(p.chunk)
	x.merge(p.chunk - 1)
}

// merge merges a chunk with the next one if both fit into one chunk, or removes an empty chunk.
func (x *index) merge(chunk int) {
	if chunk < 0 || chunk >= len(x.chunks) {
		return
	}
	c, next := x.chunks[chunk], chunk+1
	switch {
	case next < len(x.chunks) && len(c)+len(x.chunks[next]) <= maxIndexChunk:
		x.chunks[chunk] = append(c, x.chunks[next]...)
		x.chunks = slices.Delete(x.chunks, next, next+1)
	case len(c) == 0:
		x.chunks = slices.Delete(x.chunks, chunk, next)
	}
}

// chunkFrom returns the targets from p to the end of its chunk, and advances p to the next chunk. It returns nil past the last
// chunk.
func (x *index) chunkFrom(p *position) []*target {
	if p.chunk == len(x.chunks) {
		return nil
	}
	some := x.chunks[p.chunk][p.at:]
	*p = position{chunk: p.chunk + 1}
	return some
}

// countFrom returns the number of targets from p to the end.
func (x *index) countFrom(p position) int {
	n := -p.at
	for _, c := range x.chunks[p.chunk:] {
		n += len(c)
	}
	return n
}
