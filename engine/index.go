package engine

import (
	"slices"
	"strings"
)

// index keeps targets sorted by name. They are in chunks, so that adding or removing one
// moves few others, and a walk from any name costs no more than what it visits. It needs
// 8 to 16 bytes for each of many targets.
type index struct {
	chunks [][]*target // sorted; none is empty
	count  int         // of targets
}

// maxIndexChunk bounds the targets that move when one is added or removed.
const maxIndexChunk = 512

// position is where a target is in an index.
type position struct{ chunk, at int }

// after returns the position of the first target whose name sorts after name. It is
// behind the last chunk if there is none.
func (x *index) after(name string) position {
	p := x.find(name)
	if p.chunk < len(x.chunks) && x.chunks[p.chunk][p.at].name == name {
		if p.at++; p.at == len(x.chunks[p.chunk]) {
			p = position{chunk: p.chunk + 1}
		}
	}
	return p
}

// find returns the position of the first target whose name is name or sorts after it.
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

// newChunk returns a chunk with some targets and room for more: insert splits it before
// it would grow.
func newChunk(some ...*target) []*target {
	return append(make([]*target, 0, maxIndexChunk+1), some...)
}

// insert adds a target, whose name is not in the index.
func (x *index) insert(t *target) {
	x.count++
	p := x.find(t.name)
	if last := len(x.chunks) - 1; p.chunk > last { // after all others
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

// remove removes the target of a name.
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

// merge merges a chunk with the next one, or drops it, if few targets are left.
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

// chunkFrom returns the targets from p on that are in one chunk, and moves p behind them.
// It returns nil behind the last chunk.
func (x *index) chunkFrom(p *position) []*target {
	if p.chunk == len(x.chunks) {
		return nil
	}
	some := x.chunks[p.chunk][p.at:]
	*p = position{chunk: p.chunk + 1}
	return some
}

// countFrom returns how many targets there are from p on.
func (x *index) countFrom(p position) int {
	n := -p.at
	for _, c := range x.chunks[p.chunk:] {
		n += len(c)
	}
	return n
}
