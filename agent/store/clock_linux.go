package store

import "golang.org/x/sys/unix"

// sinceBoot returns nanoseconds since the machine has booted, or 0.
func sinceBoot() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return t.Nano()
}
