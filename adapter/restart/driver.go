package restart

import (
	"context"
	"time"
)

// Driver makes the lives of one target, one after another.
type Driver interface {
	// Run makes one life and returns when it has ended, or could not begin.
	//
	// It calls began once, as soon as the life runs, with an ID that no other
	// life of the target has. A grace period that arrives on end asks it to end
	// the life: politely first, by force when the grace period is over. More
	// may arrive, and each may only shorten what is left. When ctx is done the
	// life is ended by force at once. A driver that was asked to end a life and
	// could not goes on, and is asked again.
	Run(ctx context.Context, began func(id string), end <-chan time.Duration) Exit
}

// External is a Driver of lives that something else runs, and goes on running
// without the engine. Such a driver is asked on end only because a probe fails.
// When its unit is removed or changed, or the controller ends, the life is let
// go: ctx is done, and Run returns without touching it. The next life begins as
// soon as one has ended; it is the ends that are kept apart by the back-off.
type External interface {
	Driver
	External() // does nothing; it tells what kind of driver this is
}

// Exit says how a life ended.
type Exit struct {
	Code      int    // exit status; 128 plus the signal's number for a signal; -1 when Err is set
	Err       error  // why the life could not begin or be watched; nil once it had begun
	LastWords string // the end of what it wrote, at most 4 KiB; may be empty
}
