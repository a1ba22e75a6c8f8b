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
	loaded sync.Map     // the tokens with which shards are marked: Revisions by shard.ID
	lease  atomic.Int64 // of these marks, with the TTL Config.MaxAge; it outlives sessions; 0 before the first, or without MaxAge
}

// has reports whether a shard is marked as loaded with a token.
func (m *marks) has(id shard.ID, token Revision) bool {
	marked, _ := m.loaded.Load(id)
	return marked == token
}

// lose discards the lease of the marks, which has expired. The next marks get a new one.
func (m *marks) lose(ended Lease) { m.lease.CompareAndSwap(int64(ended), 0) }

// MarkLoaded records that this engine has loaded the memories of shards with these tokens, and has stored what it made
// of them. From then on acts may begin for the shards, and their memories are recent while this engine is alive. Until
// then they are as recent as those of the previous owner, whatever happens to this engine. Shards whose token has
// changed are skipped. After an error, some shards may have been marked.
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
		if errors.Is(err, ErrLeaseEnded) { // the marks of other shards are lost as well: all shards are claimed again
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

// grantMarks returns the lease of the loaded marks. It is granted at the first mark.
func (c *Coordinator) grantMarks(ctx context.Context) (Lease, error) {
	if l := Lease(c.marks.lease.Load()); l != 0 || c.config.MaxAge == 0 {
		return l, nil
	}
	l, err := c.grant(ctx, c.config.MaxAge)
	if err != nil {
		return 0, err
	}
	if !c.marks.lease.CompareAndSwap(0, int64(l)) { // another lease was granted meanwhile
		return c.grantMarks(ctx)
	}
	return l, nil
}

// hasMet reports whether the owner with a token was alive while this engine was a member, and this engine still is one.
func (c *Coordinator) hasMet(token Revision) bool {
	lease, _ := c.lease.get() // read before latest, since a lease is only set by a session that is the latest
	current := c.latest()
	return lease != 0 && current.self.lease == lease && current.view.wasAlive(token)
}

// tokenValue returns the value of a loaded mark.
func tokenValue(token Revision) []byte { return strconv.AppendInt(nil, int64(token), 10) }

// ParseMark returns the token in the value of a loaded mark, or 0 if the value is invalid.
func ParseMark(value []byte) Revision {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return 0
	}
	return Revision(n)
}
