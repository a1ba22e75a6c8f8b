package coord

import (
	"context"
	"fmt"

	"github.com/sonde-probe/sonde/coord/shard"
)

// MaxMemories bounds the memories of a shard, in bytes.
const MaxMemories = 512 << 10

// Load returns the memories of a shard's targets as they were stored last, nil if there are none.
func (c *Coordinator) Load(ctx context.Context, id shard.ID) ([]byte, error) {
	return c.read(ctx, keyMemory+id.String())
}

// Store replaces the memories of the targets of one of this engine's shards. The error is ErrNotOwner
// if the shard is another's, or has another token.
func (c *Coordinator) Store(ctx context.Context, id shard.ID, token Revision, memories []byte) error {
	if len(memories) > MaxMemories {
		return fmt.Errorf("the memories of shard %v have %d bytes, at most %d are allowed", id, len(memories), MaxMemories)
	}
	return c.put(ctx, id, token, keyMemory+id.String(), memories)
}

// read returns the value of a key, nil if there is none.
func (c *Coordinator) read(ctx context.Context, key string) ([]byte, error) {
	entry, err := c.config.Backend.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return entry.Value, nil
}

// put puts an entry that belongs to a shard, if this engine owns it with a token.
func (c *Coordinator) put(ctx context.Context, id shard.ID, token Revision, key string, value []byte) error {
	return c.Write(ctx, id, token, Change{Key: key, Value: value})
}
