package store

import "golang.org/x/sys/unix"

// sinceBoot returns the nanoseconds since the machine was booted, or 0 if unknown.
func sinceBoot() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return t.Nano()
}
