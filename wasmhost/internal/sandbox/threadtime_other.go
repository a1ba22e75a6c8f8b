//go:build !linux

package sandbox

import "time"

// threadTime returns false: this system does not say.
func threadTime() (time.Duration, bool) { return 0, false }
