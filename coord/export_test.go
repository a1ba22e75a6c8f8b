package coord

import "time"

// IgnoreDeadline makes a Coordinator act beyond the end of its lease, as one does whose clock stood.
func (c *Coordinator) IgnoreDeadline() {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	c.deadline = time.Since(c.zero) + 24*time.Hour
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
