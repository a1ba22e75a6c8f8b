//go:build !linux

package clock

import "time"

// Other systems do not report how long the machine was suspended.

func sinceBoot() time.Duration { return 0 }
