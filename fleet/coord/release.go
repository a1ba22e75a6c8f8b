package coord

import (
	"context"
	"fmt"
	"slices"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// Release gives up shards that are leaving. Call it when no other work for them is under way, and their memories are
// stored. It keeps shards with acts under way: call it again after storing their memories, which the acts have changed.
// Also call it again after an error; some of the shards may have been given up.
func (c *Coordinator) Release(ctx context.Context, ids ...shard.ID) error {
	defer c.acts.allow(ids)
	busy := c.acts.forbid(ids)
	owned, _ := c.Owned()
	ids = slices.DeleteFunc(slices.Clone(ids), func(id shard.ID) bool {
		return owned[id].Token == 0 || !owned[id].Leaving || busy[id]
	})
	for batch := range slices.Chunk(ids, MaxTransactions) {
		all := make([]Transaction, 0, len(batch))
		for _, id := range batch {
			all = append(all, Transaction{
				If:   []Condition{Owns(id, owned[id].Token)},
				Then: []Change{{Key: shardKey(id), Delete: true}},
			})
		}
		if _, err := c.config.Backend.Commit(ctx, all...); err != nil {
			return fmt.Errorf("release %d shards: %w", len(batch), err)
		}
	}
	return nil
}
