// Package watchdog starts this program again when it hangs.
//
// A thread outside Go's scheduler counts how long no Beat has come: it needs no processor of
// Go, which may all be held, no lock and no memory. Then it replaces the program by a new
// one, in the same process (execve): process ID, parent, control group, standard streams,
// arguments, environment and ignored signals stay, and all other threads end.
//
// The thread counts pauses that it has slept, not time that has passed. While the process is
// stopped or frozen, so is the thread, and where processor time is short, its pauses take
// longer.
//
// It exists on Linux, on amd64 and arm64. Elsewhere Start returns ErrUnsupported.
//
// Files: watchdog_linux.go prepares the thread, which is in thread_*.s; children_linux.go
// has what the previous program has left.
package watchdog

import (
	"errors"
	"time"
)

const (
	// DefaultLimit is how long a program may hang where its configuration does not say.
	DefaultLimit = time.Minute

	// BeatInterval is how often a program that does not hang should call Beat.
	BeatInterval = time.Second
)

// ErrUnsupported is returned where the watchdog does not exist.
var ErrUnsupported = errors.New("the watchdog needs Linux on amd64 or arm64")

// restartsVariable tells the new program how often the watchdog has started it.
const restartsVariable = "SONDE_WATCHDOG_RESTARTS"
