// Package poll waits for many descriptors at once, on the goroutine that asks. Go's
// own poller serves a goroutine for each descriptor; this one serves a loop.
//
// It works on Linux. Elsewhere New returns errors.ErrUnsupported.
package poll
