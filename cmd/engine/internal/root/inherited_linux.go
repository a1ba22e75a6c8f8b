package root

import (
	"math"

	"golang.org/x/sys/unix"
)

// closeInheritedOnExec prevents commands of the engine from inheriting descriptors that its parent left open by mistake, such
// as the lock of flock(1): processes started by a restart command would hold such a lock forever. Before Linux 5.11 it has no
// effect.
func closeInheritedOnExec() {
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
}
