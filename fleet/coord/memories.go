package coord

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// MaxMemory bounds the memory of one target, in bytes.
const MaxMemory = 64 << 10

// Memory is what the next owner of a shard needs to know about one of its targets.
type Memory struct {
	Target string
	Token  Revision // this engine's token for the target's shard
	Value  []byte   // nil: no memory, as for a target that was removed
}

// Memories are the stored memories of a shard.
type Memories struct {
	ByTarget map[string][]byte
	Loaded   Revision // the token of the owner that last marked the shard as loaded; 0 for none

	// IsRecent reports whether the owner that last marked the shard as loaded was alive within Config.MaxAge.
	IsRecent bool

	// IsContinued reports whether this engine was a member of the fleet while that owner was alive, and still is one.
	// Otherwise all engines may have been stopped in between.
	IsContinued bool
}

// Load returns the stored memories of shards. It sends one request per MaxTransactions shards.
func (c *Coordinator) Load(ctx context.Context, ids ...shard.ID) (map[shard.ID]Memories, error) {
	all := make(map[shard.ID]Memories, len(ids))
	for batch := range slices.Chunk(ids, MaxTransactions) {
		prefixes := make([]string, 0, len(batch))
		for _, id := range batch {
			prefixes = append(prefixes, keyMark+id.String())
		}
		found, err := c.config.Backend.RangeAll(ctx, prefixes...)
		if err != nil {
			return nil, fmt.Errorf("read the memories of %d shards, %s the first: %w", len(batch), prefixes[0], err)
		}
		for i, id := range batch {
			m := readMemories(prefixes[i], found[i])
			m.IsRecent = c.config.MaxAge == 0 || m.Loaded != 0
			m.IsContinued = m.Loaded != 0 && c.hasMet(m.Loaded)
			all[id] = m
		}
	}
	return all, nil
}

// readMemories returns the memories in the entries of a shard's prefix. The prefix itself is the key of the loaded mark.
func readMemories(prefix string, entries []Entry) Memories {
	m := Memories{ByTarget: map[string][]byte{}}
	for _, e := range entries {
		if e.Key == prefix {
			m.Loaded = ParseMark(e.Value)
		} else if target, ok := TargetOf(strings.TrimPrefix(e.Key, keyMark)); ok {
			m.ByTarget[target] = e.Value
		}
	}
	return m
}

// write is a transaction that stores some memories of one shard.
type write struct {
	Transaction
	of []int // indices of the memories
}

// Store replaces the memories of some targets of this engine's shards. It needs few requests if the memories of a shard
// follow each other. It returns an error for each memory, in order: nil if it was stored, and ErrNotOwner if another
// engine owns the shard or its token has changed. The error of one shard does not prevent others from being stored.
func (c *Coordinator) Store(ctx context.Context, all ...Memory) []error {
	errs := make([]error, len(all))
	var batch []write
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
		owned, last := Owns(shard.Of(m.Target), m.Token), len(batch)-1
		joins := last >= 0 && batch[last].If[0] == owned && len(batch[last].of) < MaxChanges
		if size+len(m.Value) > MaxRequest || !joins && len(batch) == MaxTransactions {
			commitWrites(ctx, c.config.Backend, batch, errs)
			batch, size, joins = nil, 0, false
		}
		if !joins {
			batch = append(batch, write{Transaction: Transaction{If: []Condition{owned}}})
		}
		w := &batch[len(batch)-1]
		w.Then = append(w.Then, Change{Key: MemoryKeys.Key(NameOf(m.Target)), Value: m.Value, Delete: m.Value == nil})
		w.of = append(w.of, i)
		size += len(m.Value)
	}
	commitWrites(ctx, c.config.Backend, batch, errs)
	return errs
}

// commitWrites commits writes in one request, and sets their errors.
func commitWrites(ctx context.Context, b Backend, batch []write, errs []error) {
	if len(batch) == 0 {
		return
	}
	all := make([]Transaction, len(batch))
	for n, w := range batch {
		all[n] = w.Transaction
	}
	made, err := b.Commit(ctx, all...)
	for n, w := range batch {
		for _, i := range w.of {
			switch {
			case err != nil:
				errs[i] = fmt.Errorf("write the memories of %d shards: %w", len(batch), err)
			case !made[n]:
				errs[i] = ErrNotOwner
			}
		}
	}
}
