//go:build !linux || !(amd64 || arm64)

package watchdog

import "time"

// Start returns ErrUnsupported.
func Start(time.Duration) error { return ErrUnsupported }

// Beat does nothing.
func Beat() {}

// ExitOnly does nothing.
func ExitOnly() {}

// Shorten does nothing.
func Shorten(time.Duration) {}
