package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns for how long the machine has been suspended since boot: CLOCK_BOOTTIME less CLOCK_MONOTONIC, which
// stops during suspension. In a time namespace the difference has an offset, but grows in the same way.
func sinceBoot() time.Duration {
	const attempts = 8
	var best, shortest int64
	for i := range attempts {
		var before, boot, after unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &before) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &after) != nil {
			return 0
		}
		took := after.Nano() - before.Nano() // upper bound of the error
		if i == 0 || took < shortest {
			best, shortest = boot.Nano()-before.Nano(), took
		}
		if took < int64(tolerance)/10 {
			break
		}
	}
	return time.Duration(best)
}
