package command

import (
	"sync"
	"time"
)

// denialCounter says whether the system has denied processes or memory to commands: one
// that fails then may have failed for want of them. The counts are read only when a
// command has failed.
type denialCounter struct {
	read func() int64 // only grows

	mu     sync.Mutex
	known  bool
	count  int64
	grewAt time.Time // when count was last found to have grown
}

// begin is called before the first command at the latest.
func (d *denialCounter) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known {
		d.count, d.known = d.read(), true
	}
}

// since reports whether there may have been denials since a time.
func (d *denialCounter) since(start time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if count := d.read(); count != d.count {
		d.count, d.grewAt = count, time.Now()
	}
	return !d.grewAt.Before(start)
}
