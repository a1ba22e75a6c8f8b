package wasmhost

import "time"

// SetRetryPause sets the pause before another try on a machine that lacks resources, and
// returns a function that sets it back.
func SetRetryPause(d time.Duration) (undo func()) {
	before := [2]time.Duration{minRetryPause, maxRetryPause}
	minRetryPause, maxRetryPause = d, d
	return func() { minRetryPause, maxRetryPause = before[0], before[1] }
}
