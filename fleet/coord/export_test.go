package coord

import (
	"context"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/clock"
)

// Reasons why an act does not begin, for tests.
var (
	ErrBusy      = errBusy
	ErrNotLoaded = errNotLoaded
)

// Observe is observe.
var Observe = observe

// IgnoreDeadline makes a Coordinator act after its lease has expired, as one does whose clock has stopped.
func (c *Coordinator) IgnoreDeadline() {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	c.deadline = c.clock.Now() + int64(24*time.Hour)
}

// SetSuspended sets the function that returns how long the machine was suspended. It must be called before Run.
func (c *Coordinator) SetSuspended(suspended func() time.Duration) {
	c.clock = clock.NewSuspended(suspended)
}

// ExpireEnded checks the deadline of an act that has just finished, as happens when both need the lock at the same time,
// and reports whether it would be checked again.
func (a *Acts) ExpireEnded(ctx context.Context, o Order) (again bool, err error) {
	_, _, end, err := a.begin(ctx, o)
	if err != nil {
		return false, err
	}
	one := a.actingFor(o.Target)
	end()
	a.expire(one)
	return one.deadline.Stop(), nil
}

// OwnerOfShard is OwnerOf for a shard.
func (c *Coordinator) OwnerOfShard(id shard.ID) string { return c.latest().view.ownerOf(id) }
