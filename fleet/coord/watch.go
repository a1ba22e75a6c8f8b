package coord

import (
	"context"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// WatchMemories calls functions, one after the other, with the changes of the memories of all shards until ctx is done:
// began when all changes from now on are passed to changed, until ended is called. Memories that were stored before have to
// be read by Load. While the backend cannot be reached, and when this engine becomes a member of the fleet or no longer is
// one, it begins anew. The functions must not block for long. Memories are passed as they are now, without their tokens, and
// with them the shards that are marked as loaded, with the tokens of their owners.
func (c *Coordinator) WatchMemories(ctx context.Context, began func(), changed func(all []Memory, loaded map[shard.ID]Revision), ended func()) {
	c.Follow(ctx, "what other engines have stored cannot be followed, trying again", func(ctx context.Context) error {
		sent := time.Now()
		reading, cancel := context.WithTimeout(ctx, readTimeout)
		_, at, err := c.config.Backend.Range(reading, keyMember)
		cancel()
		if err != nil {
			return err
		}
		c.hear(sent)
		began()
		defer ended()
		for events, err := range c.config.Backend.Watch(ctx, keyMark, at) {
			if err != nil {
				return err
			}
			changed(memoriesOf(events))
		}
		return ctx.Err()
	})
}

// memoriesOf returns the memories that events are about, and the marks of shards.
func memoriesOf(events []Event) (all []Memory, loaded map[shard.ID]Revision) {
	loaded = map[shard.ID]Revision{}
	for _, e := range events {
		if target, isMemory := memoryKeys.name(e.Key); isMemory {
			all = append(all, Memory{Target: target, Value: e.Value, Modified: e.Modified})
		} else if id, isMark := parseShard(strings.TrimPrefix(e.Key, keyMark)); isMark && !e.Deleted {
			loaded[id] = parseToken(e.Value)
		}
	}
	return all, loaded
}

// OwnerOf returns the engine that owns a target's shard, by what the backend has said last, or "" if no
// member of the fleet does.
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

// claimDelay is how long another member may take to claim a shard that has no owner.
const claimDelay = time.Second

// Unconfirmed returns the shards of loaded whose owner may probe none of their targets, by what the backend has said last; nil for
// none. Such a shard has no living owner for longer than claimDelay, or its owner has not marked it as loaded within the TTL. The
// values of loaded are the tokens by which shards were marked last. Any goroutine may call it.
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
