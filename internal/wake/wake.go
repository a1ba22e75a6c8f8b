// Package wake provides a signal with which one goroutine wakes another. Signals that are set before the other
// goroutine receives are merged into one.
package wake

// Signal is a channel of capacity 1 to receive from. New creates one.
type Signal chan struct{}

// New returns a Signal that is not set.
func New() Signal { return make(Signal, 1) }

// Set wakes one receiver, now or when it next receives. It never blocks.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}
