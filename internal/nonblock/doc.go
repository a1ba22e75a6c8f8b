// Package nonblock makes attempts on descriptors that do not block: one goroutine
// drives any number of them (Stepper, Attempt) and waits for all their
// descriptors at once (Set).
//
// It works on Linux. Elsewhere NewSet returns errors.ErrUnsupported, and every
// attempt needs a goroutine.
package nonblock
