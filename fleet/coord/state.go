package coord

// state is a value that others follow: a channel is closed when it changes. It has no lock of its own.
type state[T comparable] struct {
	value   T
	changed chan struct{}
}

func newState[T comparable]() state[T] { return state[T]{changed: make(chan struct{})} }

// get returns the value, and a channel that is closed when there is another one.
func (s *state[T]) get() (T, <-chan struct{}) { return s.value, s.changed }

// set replaces the value.
func (s *state[T]) set(value T) {
	if value == s.value {
		return
	}
	s.value = value
	s.renew()
}

// renew closes the channel as if there was another value.
func (s *state[T]) renew() {
	close(s.changed)
	s.changed = make(chan struct{})
}
