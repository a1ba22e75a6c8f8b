package store

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// sinceBoot returns nanoseconds since the machine has booted, or 0.
func sinceBoot() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return t.Nano()
}

// bootID returns an ID that each boot of the machine has for itself, or nothing.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
