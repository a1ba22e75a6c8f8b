package sandbox

import (
	"syscall"
	"time"
)

// threadTime returns the processor time of the calling thread.
func threadTime() (time.Duration, bool) {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_THREAD, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), err == nil
}
