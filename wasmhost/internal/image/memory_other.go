//go:build !linux || !(amd64 || arm64)

package image

// pages has the contents of a memory.
type pages struct{ content []byte }

// newPages returns pages with a copy of content.
func newPages(content []byte) (pages, error) { return pages{append([]byte{}, content...)}, nil }

func (p *pages) size() uint64 { return uint64(len(p.content)) }

func (p *pages) close() error { return nil }

// mapping has the bytes of a memory; their length is the used size.
type mapping struct{ bytes []byte }

// mapLimit copies the initial pages.
func (m *Memory) mapLimit() error {
	if m.initial != nil {
		m.bytes = append([]byte{}, m.initial.content...)
	}
	return nil
}

// extend returns the first size bytes.
func (m *Memory) extend(size uint64) ([]byte, error) {
	if size > uint64(cap(m.bytes)) {
		grown := make([]byte, len(m.bytes), min(max(size, 2*uint64(cap(m.bytes))), m.limit))
		copy(grown, m.bytes)
		m.bytes = grown
	}
	m.bytes = m.bytes[:max(size, uint64(len(m.bytes)))]
	return m.bytes[:size:size], nil
}

// changed returns the number of modified bytes. It is unknown here, so all bytes count.
func (m *Memory) changed() int64 { return int64(m.size) }

// restore copies the initial pages back.
func (m *Memory) restore() bool {
	copy(m.bytes, m.initial.content)
	return true
}

// Free releases the memory.
func (m *Memory) Free() { m.bytes = nil }
