package coord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// marks are the shards that this engine has marked as loaded.
type marks struct {
	marksMu sync.Mutex            // guards all below
	loaded  map[shard.ID]Revision // the tokens by which shards are marked
	lease   Lease                 // of these marks, which lasts for Config.MaxAge, beyond sessions; 0 before the first, or without MaxAge
}

func (m *marks) add(id shard.ID, token Revision) {
	m.marksMu.Lock()
	defer m.marksMu.Unlock()
	m.loaded[id] = token
}

// has reports whether a shard is marked as loaded by a token.
func (m *marks) has(id shard.ID, token Revision) bool {
	m.marksMu.Lock()
	defer m.marksMu.Unlock()
	return m.loaded[id] == token
}

// current returns the lease of the marks, 0 for none.
func (m *marks) current() Lease {
	m.marksMu.Lock()
	defer m.marksMu.Unlock()
	return m.lease
}

// begin returns the lease of the marks: the one that was granted, unless there is another already.
func (m *marks) begin(granted Lease) Lease {
	m.marksMu.Lock()
	defer m.marksMu.Unlock()
	m.lease = cmp.Or(m.lease, granted)
	return m.lease
}

// lose says that the lease of the marks has ended: the next ones have another.
func (m *marks) lose(ended Lease) {
	m.marksMu.Lock()
	defer m.marksMu.Unlock()
	if m.lease == ended {
		m.lease = 0
	}
}

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
				Then: []Change{{Key: keyMemory + id.String(), Value: tokenValue(tokens[id]), Lease: lease}},
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
				c.marks.add(id, tokens[id])
			}
		}
	}
	return nil
}

// grantMarks returns the lease of the loaded marks, which is granted for the first of them.
func (c *Coordinator) grantMarks(ctx context.Context) (Lease, error) {
	if l := c.marks.current(); l != 0 || c.config.MaxAge == 0 {
		return l, nil
	}
	l, err := c.grant(ctx, c.config.MaxAge)
	if err != nil {
		return 0, err
	}
	return c.marks.begin(l), nil
}

// hasMet reports whether the owner that had a token was alive when this engine was a member, as it still is.
func (c *Coordinator) hasMet(token Revision) bool {
	lease, _ := c.lease.get() // before latest: a session has it once it is the latest
	current := c.latest()
	return lease != 0 && current.self.lease == lease && current.view.wasAlive(token)
}

// tokenValue returns the value of a loaded mark.
func tokenValue(token Revision) []byte { return strconv.AppendInt(nil, int64(token), 10) }

// parseToken returns the token of which value is the tokenValue, 0 for any other value.
func parseToken(value []byte) Revision {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return 0
	}
	return Revision(n)
}
