//go:build !linux

package quota

import "time"

// roomForProcesses returns that there is no limit: this system does not say.
func roomForProcesses() (left, limit int, ok bool) { return 0, 0, false }

// countDenials returns nothing: this system does not count denials.
func countDenials() (refusals int64, throttled time.Duration) { return 0, 0 }
