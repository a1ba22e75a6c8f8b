package coord

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// marks are the shards that this engine has marked as loaded.
type marks struct {
	loaded sync.Map     // the tokens by which shards are marked: Revisions by shard.ID
	lease  atomic.Int64 // of these marks, which lasts for Config.MaxAge, beyond sessions; 0 before the first, or without MaxAge
}

// has reports whether a shard is marked as loaded by a token.
func (m *marks) has(id shard.ID, token Revision) bool {
	marked, _ := m.loaded.Load(id)
	return marked == token
}

// lose says that the lease of the marks has ended: the next ones have another.
func (m *marks) lose(ended Lease) { m.lease.CompareAndSwap(int64(ended), 0) }

// MarkLoaded says that this engine has loaded the memories of shards by these tokens, and has stored what it has made
// of them. From then on acts may begin for them, and their memories are as recent as this engine is alive. Until
// then they are those of the owner before, whatever has become of this one. Shards that have another token by
// now are left out. After an error, some shards may have been marked.
func (c *Coordinator) MarkLoaded(ctx context.Context, tokens map[shard.ID]Revision) error {
	if len(tokens) == 0 {
		return nil
	}
	current := c.latest()
	if current == nil {
		return ErrNotOwner
	}
	lease, err := c.grantMarks(ctx)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(slices.Sorted(maps.Keys(tokens)), MaxTransactions) {
		all := make([]Transaction, 0, len(batch))
		for _, id := range batch {
			all = append(all, Transaction{
				If:   []Condition{Owns(id, tokens[id])},
				Then: []Change{{Key: keyMark + id.String(), Value: tokenValue(tokens[id]), Lease: lease}},
			})
		}
		made, err := c.config.Backend.Commit(ctx, all...)
		if errors.Is(err, ErrLeaseEnded) { // with the marks of other shards: all are claimed anew
			c.marks.lose(lease)
			current.end(err)
		}
		if err != nil {
			return fmt.Errorf("mark %d shards as loaded: %w", len(batch), err)
		}
		for i, id := range batch {
			if made[i] {
				c.marks.loaded.Store(id, tokens[id])
			}
		}
	}
	return nil
}

// grantMarks returns the lease of the loaded marks, which is granted for the first of them.
func (c *Coordinator) grantMarks(ctx context.Context) (Lease, error) {
	if l := Lease(c.marks.lease.Load()); l != 0 || c.config.MaxAge == 0 {
		return l, nil
	}
	l, err := c.grant(ctx, c.config.MaxAge)
	if err != nil {
		return 0, err
	}
	if !c.marks.lease.CompareAndSwap(0, int64(l)) { // another one was granted meanwhile
		return c.grantMarks(ctx)
	}
	return l, nil
}

// hasMet reports whether the owner that had a token was alive when this engine was a member, as it still is.
func (c *Coordinator) hasMet(token Revision) bool {
	lease, _ := c.lease.get() // before latest: a session has it once it is the latest
	current := c.latest()
	return lease != 0 && current.self.lease == lease && current.view.wasAlive(token)
}

// tokenValue returns the value of a loaded mark.
func tokenValue(token Revision) []byte { return strconv.AppendInt(nil, int64(token), 10) }

// ParseMark returns the token that the value of a loaded mark names, 0 for any other value.
func ParseMark(value []byte) Revision {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return 0
	}
	return Revision(n)
}
