package coord

import "time"

// IgnoreDeadline makes a Coordinator act beyond the end of its lease, as one does whose clock stood.
func (c *Coordinator) IgnoreDeadline() {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	c.deadline = time.Since(c.zero) + 24*time.Hour
}
