package fleet

import (
	"sync"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/wake"
)

// names are targets of a shard; nil stands for all of them, including those that were removed.
type names map[string]bool

func (n names) has(target string) bool { return n == nil || n[target] }

// changes has the targets whose memories are to be stored.
type changes struct {
	wake wake.Signal // set collectDelay after the first change

	changedMu    sync.Mutex // guards all below
	changed      map[shard.ID]names
	isCollecting bool // wake will be set after collectDelay
}

func newChanges(w wake.Signal) *changes { return &changes{wake: w, changed: map[shard.ID]names{}} }

// note marks the memory of a target to be stored, together with others that change within collectDelay.
func (c *changes) note(target string) {
	c.changedMu.Lock()
	c.mark(target)
	wasCollecting := c.isCollecting
	c.isCollecting = true
	c.changedMu.Unlock()
	if !wasCollecting {
		time.AfterFunc(collectDelay, c.wake.Set)
	}
}

// noteShard marks all memories of a shard to be stored.
func (c *changes) noteShard(id shard.ID) {
	c.changedMu.Lock()
	defer c.changedMu.Unlock()
	c.changed[id] = nil
}

// forget unmarks all memories of a shard.
func (c *changes) forget(id shard.ID) {
	c.changedMu.Lock()
	defer c.changedMu.Unlock()
	delete(c.changed, id)
}

// take returns and unmarks the changed targets of some shards, or of all shards if some is nil.
func (c *changes) take(some []shard.ID) map[shard.ID]names {
	c.changedMu.Lock()
	defer c.changedMu.Unlock()
	taken := c.changed
	if some == nil {
		c.changed, c.isCollecting = map[shard.ID]names{}, false
		return taken
	}
	taken = map[shard.ID]names{}
	for _, id := range some {
		if targets, hasChanged := c.changed[id]; hasChanged {
			taken[id] = targets
			delete(c.changed, id)
		}
	}
	return taken
}

// putBack marks targets again that were taken and could not be stored.
func (c *changes) putBack(later map[shard.ID]names) {
	c.changedMu.Lock()
	defer c.changedMu.Unlock()
	for id, targets := range later {
		if _, isMarked := c.changed[id]; !isMarked || targets == nil {
			c.changed[id] = targets
			continue
		}
		for target := range targets {
			c.mark(target)
		}
	}
}

// mark marks a target. The caller must hold changedMu.
func (c *changes) mark(target string) {
	id := shard.Of(target)
	if all, isMarked := c.changed[id]; !isMarked {
		c.changed[id] = names{target: true}
	} else if all != nil {
		all[target] = true
	}
}
