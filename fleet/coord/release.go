package coord

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// Release gives up shards that are leaving. Call it when nothing else is done for them, and their memories are stored.
// It keeps those for whose targets acts are being done, and returns after these acts: store the memories, which the acts
// have changed, and call it again. So do after an error: some of the shards may have been given up.
func (c *Coordinator) Release(ctx context.Context, ids ...shard.ID) error {
	defer c.acts.allow(ids)
	busy := c.acts.forbid(ids)
	owned, _ := c.Owned()
	idle := map[shard.ID]Revision{}
	var doing []*acting
	for _, id := range ids {
		switch o := owned[id]; {
		case o.Token == 0 || !o.Leaving:
		case len(busy[id]) == 0:
			idle[id] = o.Token
		default:
			doing = append(doing, busy[id]...)
		}
	}
	if err := deleteKeys(ctx, c.config.Backend, idle); err != nil {
		return err
	}
	for _, a := range doing {
		select {
		case <-a.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// deleteKeys deletes the keys of shards that have their tokens.
func deleteKeys(ctx context.Context, b Backend, tokens map[shard.ID]Revision) error {
	for batch := range slices.Chunk(slices.Sorted(maps.Keys(tokens)), MaxTransactions) {
		all := make([]Transaction, 0, len(batch))
		for _, id := range batch {
			all = append(all, Transaction{
				If:   []Condition{Owns(id, tokens[id])},
				Then: []Change{{Key: shardKey(id), Delete: true}},
			})
		}
		if _, err := b.Commit(ctx, all...); err != nil {
			return fmt.Errorf("release %d shards: %w", len(batch), err)
		}
	}
	return nil
}
