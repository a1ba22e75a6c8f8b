package wasmhost

import "time"

// SetCompilerPause sets the pause between compilations on a machine that lacks resources, and
// returns a function that sets it back.
func SetCompilerPause(d time.Duration) (undo func()) {
	before := [2]time.Duration{minCompilerPause, maxCompilerPause}
	minCompilerPause, maxCompilerPause = d, d
	return func() { minCompilerPause, maxCompilerPause = before[0], before[1] }
}
