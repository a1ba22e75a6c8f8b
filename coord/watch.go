package coord

import (
	"context"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/coord/shard"
)

// WatchMemories calls changed with shards whose memories may be others than before, until ctx is done: with
// all shards at first and whenever changes may have been missed. Changed must not block for long. While the
// backend cannot be reached, WatchMemories tries on.
func (c *Coordinator) WatchMemories(ctx context.Context, changed func(ids []shard.ID)) {
	isLogged := false
	for ctx.Err() == nil {
		err := c.watchMemories(ctx, func(ids []shard.ID) {
			isLogged = isLogged && len(ids) == shard.Count // which is before the first change
			changed(ids)
		})
		if ctx.Err() == nil && !isLogged {
			isLogged = true
			c.log.Warn("what other engines find out cannot be followed, trying again", "engine", c.config.Name, "error", err)
		}
		select {
		case <-time.After(c.config.TTL / 4):
		case <-ctx.Done():
		}
	}
}

// watchMemories is WatchMemories until an error.
func (c *Coordinator) watchMemories(ctx context.Context, changed func(ids []shard.ID)) error {
	sent := time.Now()
	_, at, err := c.config.Backend.Range(ctx, keyMember)
	if err != nil {
		return err
	}
	c.hear(sent)
	all := make([]shard.ID, shard.Count)
	for i := range all {
		all[i] = shard.ID(i)
	}
	changed(all)
	for events, err := range c.config.Backend.Watch(ctx, keyMemory, at) {
		if err != nil {
			return err
		}
		var ids []shard.ID
		for _, e := range events {
			text, _, _ := strings.Cut(strings.TrimPrefix(e.Key, keyMemory), "/")
			if id, ok := parseShard(text); ok {
				ids = append(ids, id)
			}
		}
		changed(ids)
	}
	return ctx.Err()
}

// OwnerOf returns the engine that owns a target's shard, by what the backend has said last, or "" if no
// member of the fleet does.
func (c *Coordinator) OwnerOf(target string) string {
	c.stateMu.Lock()
	current := c.current
	c.stateMu.Unlock()
	if current == nil {
		return ""
	}
	return current.ownerOf(shard.Of(target))
}

// ownerOf returns the member that owns a shard, or "".
func (v *view) ownerOf(id shard.ID) string {
	v.viewMu.Lock()
	defer v.viewMu.Unlock()
	o, isOwned := v.owners[id]
	if !isOwned || v.members[o.name].lease != o.lease {
		return ""
	}
	return o.name
}

// hear says that the backend has answered a request that was sent at a time.
func (c *Coordinator) hear(sent time.Time) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	if sent.After(c.heard) {
		c.heard = sent
	}
}

// Heard returns when the backend has last answered this engine, by the time of the request; zero if never. Renewals
// of the lease are such requests.
func (c *Coordinator) Heard() time.Time {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	return c.heard
}
