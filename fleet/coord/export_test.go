package coord

import (
	"context"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/clock"
)

// Why an act does not begin, for tests.
var (
	ErrBusy      = errBusy
	ErrNotLoaded = errNotLoaded
)

// Observe is observe.
var Observe = observe

// IgnoreDeadline makes a Coordinator act beyond the end of its lease, as one does whose clock stood.
func (c *Coordinator) IgnoreDeadline() {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	c.deadline = c.clock.Now() + int64(24*time.Hour)
}

// SetSuspended makes a Coordinator go by what suspended returns: for how long its machine was suspended. Call it before Run.
func (c *Coordinator) SetSuspended(suspended func() time.Duration) {
	c.clock = clock.NewSuspended(suspended)
}

// ExpireEnded has the deadline of an act looked at that has just ended, as when both need the lock at the same time,
// and reports whether it is to be looked at again.
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
