package coord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// MaxMemory bounds what is remembered of one target, in bytes.
const MaxMemory = 64 << 10

// Memory is what the next owner of a shard has to remember of one of its targets.
type Memory struct {
	Target string
	Token  Revision // of this engine for the target's shard
	Value  []byte   // nil: nothing, as for a target that is gone

	Modified Revision // by which the backend has it; Store ignores it
}

// Memories are what a Backend has of a shard.
type Memories struct {
	ByTarget map[string][]byte
	Modified Revision // of the latest of these; 0 without any

	// IsRecent says that the last owner which has marked the shard as loaded was alive within Config.MaxAge.
	IsRecent bool

	// IsContinued says that this engine was a member of the fleet while that owner was alive, and still is. Otherwise all
	// engines may have been stopped in between.
	IsContinued bool
}

// Load returns the memories of shards as they were stored last. It makes one request for every
// MaxTransactions shards.
func (c *Coordinator) Load(ctx context.Context, ids ...shard.ID) (map[shard.ID]Memories, error) {
	all := make(map[shard.ID]Memories, len(ids))
	for batch := range slices.Chunk(ids, MaxTransactions) {
		prefixes := make([]string, 0, len(batch))
		for _, id := range batch {
			prefixes = append(prefixes, keyMemory+id.String())
		}
		found, err := c.config.Backend.RangeAll(ctx, prefixes...)
		if err != nil {
			return nil, fmt.Errorf("read the memories of %d shards, %s the first: %w", len(batch), prefixes[0], err)
		}
		for i, id := range batch {
			all[id] = c.memories(prefixes[i], found[i])
		}
	}
	return all, nil
}

// memories returns what the entries of a shard's prefix say. The prefix itself is the key of the loaded mark.
func (c *Coordinator) memories(prefix string, entries []Entry) Memories {
	m := Memories{ByTarget: map[string][]byte{}, IsRecent: c.config.MaxAge == 0}
	for _, e := range entries {
		if e.Key == prefix {
			m.IsRecent, m.IsContinued = true, c.hasMet(parseToken(e.Value))
		} else if target, ok := targetOf(e.Key, keyMemory); ok {
			m.ByTarget[target] = e.Value
			m.Modified = max(m.Modified, e.Modified)
		}
	}
	return m
}

// hasMet reports whether the owner that had a token was alive when this engine was a member, as it still is.
func (c *Coordinator) hasMet(token Revision) bool {
	c.stateMu.Lock()
	current := c.current
	lease, _ := c.lease.get()
	c.stateMu.Unlock()
	return lease != 0 && current.self.lease == lease && current.view.wasAlive(token)
}

// MarkLoaded says that this engine has loaded the memories of shards by these tokens, and has stored what it has made
// of them. From then on acts may begin for them, and their memories are as recent as this engine is alive. Until
// then they are those of the owner before, whatever has become of this one. Shards that have another token by
// now are left out. After an error, some shards may have been marked.
func (c *Coordinator) MarkLoaded(ctx context.Context, tokens map[shard.ID]Revision) error {
	c.stateMu.Lock()
	current := c.current
	c.stateMu.Unlock()
	if len(tokens) == 0 {
		return nil
	}
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
				If:   []Condition{{Key: shardKey(id), Created: tokens[id]}},
				Then: []Change{{Key: keyMemory + id.String(), Value: tokenValue(tokens[id]), Lease: lease}},
			})
		}
		made, err := c.config.Backend.Commit(ctx, all...)
		if errors.Is(err, ErrLeaseEnded) { // with the marks of other shards: all are claimed anew
			c.loseMarks(lease)
			current.end(err)
		}
		if err != nil {
			return fmt.Errorf("mark %d shards as loaded: %w", len(batch), err)
		}
		c.stateMu.Lock()
		for i, id := range batch {
			if made[i] {
				c.loaded[id] = tokens[id]
			}
		}
		c.stateMu.Unlock()
	}
	return nil
}

// markLease returns the lease of the loaded marks of this engine, 0 for none.
func (c *Coordinator) markLease() Lease {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	return c.marks
}

// grantMarks is markLease, which it has granted at first.
func (c *Coordinator) grantMarks(ctx context.Context) (Lease, error) {
	if l := c.markLease(); l != 0 || c.config.MaxAge == 0 {
		return l, nil
	}
	l, err := c.grant(ctx, c.config.MaxAge)
	if err != nil {
		return 0, err
	}
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	c.marks = cmp.Or(c.marks, l)
	return c.marks, nil
}

// loseMarks says that the lease of the loaded marks has ended: the next ones have another.
func (c *Coordinator) loseMarks(ended Lease) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	if c.marks == ended {
		c.marks = 0
	}
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

// Store replaces the memories of some targets of this engine's shards, in few requests if those of a shard
// follow each other, and returns an error for each of them, in their order: nil if it was stored, and
// ErrNotOwner if the shard is another's, or has another token. The error of one shard does not keep others
// from being stored.
func (c *Coordinator) Store(ctx context.Context, all ...Memory) []error {
	errs := make([]error, len(all))
	var batch [][]int // indices of all, by transaction
	size := 0
	for i, m := range all {
		switch {
		case m.Token == 0:
			errs[i] = ErrNotOwner
			continue
		case len(m.Value) > MaxMemory:
			errs[i] = fmt.Errorf("the memory of target %q has %d bytes, at most %d are allowed", m.Target, len(m.Value), MaxMemory)
			continue
		}
		joins := len(batch) > 0 && isSameShard(all[batch[len(batch)-1][0]], m) && len(batch[len(batch)-1]) < MaxChanges
		if len(batch) > 0 && (size+len(m.Value) > MaxRequest || !joins && len(batch) == MaxTransactions) {
			c.storeBatch(ctx, all, batch, errs)
			batch, size, joins = nil, 0, false
		}
		if joins {
			batch[len(batch)-1] = append(batch[len(batch)-1], i)
		} else {
			batch = append(batch, []int{i})
		}
		size += len(m.Value)
	}
	if len(batch) > 0 {
		c.storeBatch(ctx, all, batch, errs)
	}
	return errs
}

func isSameShard(a, b Memory) bool {
	return a.Token == b.Token && shard.Of(a.Target) == shard.Of(b.Target)
}

// storeBatch stores those of all memories that batch has the indices of, each element by one transaction,
// and sets their errors.
func (c *Coordinator) storeBatch(ctx context.Context, all []Memory, batch [][]int, errs []error) {
	transactions := make([]Transaction, 0, len(batch))
	for _, indices := range batch {
		id := shard.Of(all[indices[0]].Target)
		t := Transaction{If: []Condition{{Key: shardKey(id), Created: all[indices[0]].Token}}}
		for _, i := range indices {
			t.Then = append(t.Then, Change{Key: targetKey(keyMemory, all[i].Target), Value: all[i].Value, Delete: all[i].Value == nil})
		}
		transactions = append(transactions, t)
	}
	made, err := c.config.Backend.Commit(ctx, transactions...)
	for n, indices := range batch {
		for _, i := range indices {
			switch {
			case err != nil:
				errs[i] = fmt.Errorf("write the memories of %d shards: %w", len(batch), err)
			case !made[n]:
				errs[i] = ErrNotOwner
			}
		}
	}
}
