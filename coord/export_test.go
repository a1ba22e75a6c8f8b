package coord

import (
	"time"

	"github.com/sonde-probe/sonde/internal/clock"
)

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

// LogSize returns how many bytes the values in the log of a Local have.
func (b *Local) LogSize() (n int) {
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	for _, l := range b.log {
		n += len(l.Value)
	}
	return n
}
