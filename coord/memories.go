package coord

import (
	"context"
	"fmt"
	"slices"

	"github.com/sonde-probe/sonde/coord/shard"
)

// MaxMemories bounds the memories of a shard, in bytes.
const MaxMemories = 512 << 10

// Memories are what the next owner of a shard has to remember of its targets.
type Memories struct {
	Shard shard.ID
	Token Revision // of this engine
	Value []byte
}

// Load returns the memories of shards as they were stored last; of a shard without any there are none. It
// makes one request for every MaxTransactions shards.
func (c *Coordinator) Load(ctx context.Context, ids ...shard.ID) (map[shard.ID][]byte, error) {
	all := map[shard.ID][]byte{}
	for batch := range slices.Chunk(ids, MaxTransactions) {
		keys := make([]string, 0, len(batch))
		for _, id := range batch {
			keys = append(keys, keyMemory+id.String())
		}
		entries, err := c.config.Backend.GetAll(ctx, keys...)
		if err != nil {
			return nil, fmt.Errorf("read the memories of %d shards, %s the first: %w", len(batch), keys[0], err)
		}
		for i, e := range entries {
			if e.Created != 0 {
				all[batch[i]] = e.Value
			}
		}
	}
	return all, nil
}

// Store replaces the memories of some of this engine's shards, in few requests, and returns an error for each
// of them, in their order: nil if it was stored, and ErrNotOwner if the shard is another's, or has another token.
// The error of one does not keep others from being stored.
func (c *Coordinator) Store(ctx context.Context, all ...Memories) []error {
	errs := make([]error, len(all))
	var batch []int // indices of all
	size := 0
	for i, m := range all {
		switch {
		case m.Token == 0:
			errs[i] = ErrNotOwner
			continue
		case len(m.Value) > MaxMemories:
			errs[i] = fmt.Errorf("the memories of shard %v have %d bytes, at most %d are allowed", m.Shard, len(m.Value), MaxMemories)
			continue
		case len(batch) == MaxTransactions || size+len(m.Value) > MaxRequest:
			c.storeBatch(ctx, all, batch, errs)
			batch, size = batch[:0], 0
		}
		batch = append(batch, i)
		size += len(m.Value)
	}
	if len(batch) > 0 {
		c.storeBatch(ctx, all, batch, errs)
	}
	return errs
}

// storeBatch stores those of all memories that batch has the indices of, and sets their errors.
func (c *Coordinator) storeBatch(ctx context.Context, all []Memories, batch []int, errs []error) {
	transactions := make([]Transaction, 0, len(batch))
	for _, i := range batch {
		m := all[i]
		transactions = append(transactions, Transaction{
			If:   []Condition{{Key: shardKey(m.Shard), Created: m.Token}},
			Then: []Change{{Key: keyMemory + m.Shard.String(), Value: m.Value}},
		})
	}
	made, err := c.config.Backend.Commit(ctx, transactions...)
	for n, i := range batch {
		switch {
		case err != nil:
			errs[i] = fmt.Errorf("write the memories of %d shards: %w", len(batch), err)
		case !made[n]:
			errs[i] = ErrNotOwner
		}
	}
}
