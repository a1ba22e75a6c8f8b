package coord

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// Name returns the name of this engine.
func (c *Coordinator) Name() string { return c.config.Name }

// TTL returns how long the lease of this engine lasts.
func (c *Coordinator) TTL() time.Duration { return c.config.TTL }

// Backend returns what the engines share. Its keys are those that view.go lists, and the votes of package fleet.
func (c *Coordinator) Backend() Backend { return c.config.Backend }

// Lease returns the lease of this engine's membership, 0 while it is not a member, and a channel that is
// closed when that has changed. What is put with it is deleted once the engine is no longer a member. The channel is
// also closed when the backend may have lost what was put, since changes were missed: with the lease that is still the
// same, all is to be read and put again.
func (c *Coordinator) Lease() (Lease, <-chan struct{}) { return c.lease.get() }

// Interruptions returns how often this engine has read the members of the fleet again while it was one, since changes may
// have been missed, and a channel that is closed when that has changed. The backend may have been restored from a
// snapshot meanwhile, and lack what this engine has stored.
func (c *Coordinator) Interruptions() (n int, changed <-chan struct{}) { return c.missed.get() }

// Write makes changes that belong to one of this engine's shards, each on its own. The error is ErrNotOwner
// if the shard is another's, or has another token. After an error, some changes may have been made.
func (c *Coordinator) Write(ctx context.Context, id shard.ID, token Revision, changes ...Change) error {
	if token == 0 {
		return ErrNotOwner
	}
	for batch := range slices.Chunk(changes, MaxTransactions) {
		all := make([]Transaction, 0, len(batch))
		for _, change := range batch {
			all = append(all, Transaction{If: []Condition{{Key: shardKey(id), Created: token}}, Then: []Change{change}})
		}
		made, err := c.config.Backend.Commit(ctx, all...)
		switch {
		case err != nil:
			return fmt.Errorf("write %s: %w", batch[0].Key, err)
		case slices.Contains(made, false):
			return ErrNotOwner
		}
	}
	return nil
}
