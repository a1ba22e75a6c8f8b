package coord

import (
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// OwnerOf returns the engine that owns a target's shard, as last read from the backend, or "" if no member owns it.
func (c *Coordinator) OwnerOf(target string) string {
	current := c.latest()
	if current == nil {
		return ""
	}
	return current.view.ownerOf(shard.Of(target))
}

// ownerOf returns the member that owns a shard, or "".
func (v *view) ownerOf(id shard.ID) string {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	o, isOwned := v.owners[id]
	if !isOwned || v.members[o.name].Lease != o.lease {
		return ""
	}
	return o.name
}

// claimDelay is how long a member may take to claim a shard without an owner.
const claimDelay = time.Second

// Unconfirmed returns those shards of loaded that may have no owner that probes their targets now, as last read from the
// backend; nil for none. Such a shard has had no living owner for longer than claimDelay, or its owner has not marked it
// as loaded within the TTL. The values of loaded are the tokens with which the shards were last marked. Any goroutine
// may call it.
func (c *Coordinator) Unconfirmed(loaded map[shard.ID]Revision) (all map[shard.ID]bool) {
	current := c.latest()
	if current == nil {
		return nil
	}
	v := &current.view
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	for id, token := range loaded {
		o, isOwned := v.owners[id]
		age := time.Since(v.changed[id])
		isAlive := isOwned && v.members[o.name].Lease == o.lease
		if isAlive && (token == o.token || age <= c.config.TTL) || !isOwned && age <= claimDelay {
			continue
		}
		if all == nil {
			all = map[shard.ID]bool{}
		}
		all[id] = true
	}
	return all
}

// hear records that the backend has responded to a request that was sent at a time.
func (c *Coordinator) hear(sent time.Time) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	if sent.After(c.heard) {
		c.heard = sent
	}
}

// Heard returns the time of the latest request, such as a renewal of the lease, to which the backend has responded; zero
// if none.
func (c *Coordinator) Heard() time.Time {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	return c.heard
}
