package sandbox

import "github.com/tetratelabs/wazero/experimental"

// memory is the linear memory of one instance. It grows up to a limit and records whether
// it was refused more.
type memory struct {
	limit   uint64
	bytes   []byte
	refused bool
}

// Allocate is called once, when the instance is made.
func (m *memory) Allocate(size, _ uint64) experimental.LinearMemory {
	m.bytes = make([]byte, 0, min(size, m.limit))
	return m
}

// Reallocate returns the memory with another size, or nil when that is above the limit.
func (m *memory) Reallocate(size uint64) []byte {
	if size > m.limit {
		m.refused = true
		return nil
	}
	if size > uint64(cap(m.bytes)) {
		grown := make([]byte, len(m.bytes), min(max(size, 2*uint64(cap(m.bytes))), m.limit))
		copy(grown, m.bytes)
		m.bytes = grown
	}
	m.bytes = m.bytes[:max(size, uint64(len(m.bytes)))]
	return m.bytes[:size:size]
}

// Free releases the memory.
func (m *memory) Free() { m.bytes = nil }
