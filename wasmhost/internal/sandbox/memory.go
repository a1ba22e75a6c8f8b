package sandbox

import "github.com/tetratelabs/wazero/experimental"

// memory is the linear memory of one instance. It grows up to a limit, and while the budget
// of all instances allows it, and records whether it was refused more.
type memory struct {
	limit   uint64
	take    func(bytes int64) bool // counts more memory; false means that there is none
	bytes   []byte
	refused bool
	noRoom  bool // take has returned false
}

// Allocate is called once, when the instance is made. The size has been counted.
func (m *memory) Allocate(size, _ uint64) experimental.LinearMemory {
	m.bytes = make([]byte, 0, min(size, m.limit))
	return m
}

// Reallocate returns the memory with another size, or nil when there is not as much.
func (m *memory) Reallocate(size uint64) []byte {
	if size > m.limit || size > uint64(cap(m.bytes)) && !m.grow(size) {
		m.refused = true
		return nil
	}
	m.bytes = m.bytes[:max(size, uint64(len(m.bytes)))]
	return m.bytes[:size:size]
}

// grow makes room for a size: twice as much as before, if there is as much.
func (m *memory) grow(size uint64) bool {
	old := uint64(cap(m.bytes))
	room := min(max(size, 2*old), m.limit)
	if !m.take(int64(room - old)) {
		if room = size; !m.take(int64(room - old)) {
			m.noRoom = true
			return false
		}
	}
	grown := make([]byte, len(m.bytes), room)
	copy(grown, m.bytes)
	m.bytes = grown
	return true
}

// Free releases the memory.
func (m *memory) Free() { m.bytes = nil }
