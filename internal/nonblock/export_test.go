package nonblock

// MaxSpares is maxSpares.
const MaxSpares = maxSpares

// AddEnd is addEnd.
func (s *Set) AddEnd(fd int, key uint32) error { return s.addEnd(fd, key) }
