package image

import (
	"fmt"

	"github.com/tetratelabs/wazero/experimental"
)

// Memory is the linear memory of one instance, capped at a limit, together with its allocator. It must be used by one
// goroutine at a time.
type Memory struct {
	Refused bool  // the instance was refused more memory
	Err     error // the error if it was refused memory below the limit: the last error of take or of the system

	limit   uint64
	take    func(bytes int64) error
	size    uint64
	initial *pages // nil if the memory starts with zeros
	mapping
}

// NewMemory returns a memory with the contents of an image or, if from is nil, zeros. declared is
// the size in bytes that the module declares, at most limit. When the instance needs more, take is
// called with the number of bytes, and may refuse them with an error. An error of NewMemory means
// that the system lacks memory. Each Memory needs a Free.
func NewMemory(from *Image, declared, limit int64, take func(bytes int64) error) (*Memory, error) {
	m := &Memory{limit: uint64(limit), take: take, size: uint64(declared)}
	if from != nil {
		m.initial = &from.pages
		m.size = from.pages.size()
	}
	if err := m.mapLimit(); err != nil {
		return nil, err
	}
	if _, err := m.extend(m.size); err != nil { // the start of the instance would panic
		m.Free()
		return nil, fmt.Errorf("memory of an instance: %w", err)
	}
	return m, nil
}

// Allocate returns m. The runtime calls it once.
func (m *Memory) Allocate(_, _ uint64) experimental.LinearMemory { return m }

// Reallocate returns the bytes of the memory with a new size, or nil if that is refused.
func (m *Memory) Reallocate(size uint64) []byte {
	if size > m.limit {
		m.Refused = true
		return nil
	}
	var err error
	if size > m.size {
		err = m.take(int64(size - m.size))
	}
	if err != nil {
		m.Refused, m.Err = true, err
		return nil
	}
	m.size = max(m.size, size)
	b, err := m.extend(size)
	if err != nil {
		m.Refused, m.Err = true, err
		return nil
	}
	return b
}

// Unused returns the number of unmodified bytes, which use no memory of their own, or 0 if that is
// unknown.
func (m *Memory) Unused() int64 { return max(int64(m.size)-m.changed(), 0) }

// reset restores the initial pages. It returns false if the memory has grown or the system refuses.
func (m *Memory) reset() bool {
	m.Refused, m.Err = false, nil
	return m.initial != nil && m.size == m.initial.size() && m.restore()
}
