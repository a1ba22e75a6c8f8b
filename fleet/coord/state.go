package coord

import "sync"

// state is a value whose changes are announced by closing a channel. Its methods are safe for concurrent use by multiple
// goroutines.
type state[T any] struct {
	isEqual func(a, b T) bool

	valueMu sync.Mutex // guards all below
	value   T
	changed chan struct{}
}

func newState[T comparable]() *state[T] { return newStateBy(func(a, b T) bool { return a == b }) }

// newStateBy returns a state that ignores updates to an equal value.
func newStateBy[T any](isEqual func(a, b T) bool) *state[T] {
	return &state[T]{isEqual: isEqual, changed: make(chan struct{})}
}

// get returns the value, and a channel that is closed when it changes.
func (s *state[T]) get() (T, <-chan struct{}) {
	s.valueMu.Lock()
	defer s.valueMu.Unlock()
	return s.value, s.changed
}

// set replaces the value.
func (s *state[T]) set(value T) { s.update(func(v *T) { *v = value }) }

// update changes the value.
func (s *state[T]) update(change func(*T)) {
	s.valueMu.Lock()
	defer s.valueMu.Unlock()
	value := s.value
	change(&value)
	if s.isEqual(value, s.value) {
		return
	}
	s.value = value
	s.announce()
}

// renew closes the channel as if the value had changed.
func (s *state[T]) renew() {
	s.valueMu.Lock()
	defer s.valueMu.Unlock()
	s.announce()
}

// announce closes the channel and replaces it. The caller must hold valueMu.
func (s *state[T]) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}
