package root

import (
	"math"

	"golang.org/x/sys/unix"
)

// closeInheritedOnExec keeps commands of the engine from inheriting what its parent has left
// open by mistake, such as the lock of flock(1). What a restart command starts would hold it
// for ever. Before Linux 5.11 it has no effect.
func closeInheritedOnExec() {
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
}
