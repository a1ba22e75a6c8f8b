package wasmhost

import "time"

// SetRetryPause sets the pause before a retry on a machine that lacks resources. It returns a
// function that restores the pause.
func SetRetryPause(d time.Duration) (undo func()) {
	before := [2]time.Duration{minRetryPause, maxRetryPause}
	minRetryPause, maxRetryPause = d, d
	return func() { minRetryPause, maxRetryPause = before[0], before[1] }
}
