package coordtest

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
)

// Local is a store in this process, for the engines of a test. It satisfies the laws of Run.
type Local struct {
	storeMu   sync.Mutex // guards all below
	entries   map[string]leased
	keys      []string // of entries, sorted
	leases    map[coord.Lease]expiry
	revision  coord.Revision
	lastLease coord.Lease
	log       []coord.Event
	forgotten coord.Revision // the latest event that is no longer in log
	changed   chan struct{}  // closed with the next event; nil if nobody waits
}

// leased is an entry with its lease.
type leased struct {
	coord.Entry
	lease coord.Lease
}

// expiry is when a lease expires.
type expiry struct {
	timer *time.Timer
	ttl   time.Duration
}

// maxLog is the maximum length of Local.log; beyond it the first half is discarded. A watch that lags further behind ends.
const maxLog = 1 << 15

// NewLocal returns a Local without entries.
func NewLocal() *Local {
	return &Local{entries: map[string]leased{}, leases: map[coord.Lease]expiry{}}
}

// Grant implements coord.Backend.
func (b *Local) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	b.lastLease++
	l := b.lastLease
	b.leases[l] = expiry{time.AfterFunc(ttl, func() { b.expire(l) }), ttl}
	return l, nil
}

// KeepAlive implements coord.Backend.
func (b *Local) KeepAlive(ctx context.Context, l coord.Lease) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	end, exists := b.leases[l]
	if !exists || !end.timer.Stop() {
		return coord.ErrLeaseEnded
	}
	end.timer.Reset(end.ttl)
	return nil
}

// Revoke implements coord.Backend.
func (b *Local) Revoke(ctx context.Context, l coord.Lease) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.expire(l)
	return nil
}

// expire expires a lease, and deletes its entries in one revision.
func (b *Local) expire(l coord.Lease) {
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	end, exists := b.leases[l]
	if !exists {
		return
	}
	end.timer.Stop()
	delete(b.leases, l)
	b.revision++
	for _, key := range slices.Clone(b.keys) {
		if b.entries[key].lease == l {
			b.apply(coord.Change{Key: key, Delete: true})
		}
	}
}

// Commit implements coord.Backend.
func (b *Local) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := coord.CheckCommit(all); err != nil {
		return nil, err
	}
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	for _, t := range all {
		for _, c := range t.Then {
			if _, exists := b.leases[c.Lease]; c.Lease != 0 && !exists {
				return nil, coord.ErrLeaseEnded
			}
		}
	}
	b.revision++
	made := make([]bool, len(all))
	for i, t := range all {
		made[i] = !slices.ContainsFunc(t.If, func(c coord.Condition) bool { return !holds(c, b.entries[c.Key].Entry) })
		if !made[i] {
			continue
		}
		for _, c := range t.Then {
			b.apply(c)
		}
	}
	return made, nil
}

// holds reports whether an entry fulfills a condition on its key. An entry without Created means that the key has none.
func holds(c coord.Condition, e coord.Entry) bool {
	if c.Modified != 0 {
		return e.Created != 0 && e.Modified == c.Modified
	}
	return e.Created == c.Created
}

// apply makes a change under the current revision. The caller must hold storeMu.
func (b *Local) apply(c coord.Change) {
	before, exists := b.entries[c.Key]
	if c.Delete && !exists {
		return
	}
	event := coord.Event{Entry: coord.Entry{Key: c.Key, Modified: b.revision}, Deleted: c.Delete}
	at, _ := slices.BinarySearch(b.keys, c.Key)
	if c.Delete {
		delete(b.entries, c.Key)
		b.keys = slices.Delete(b.keys, at, at+1)
	} else {
		event.Value, event.Created = slices.Clone(c.Value), cmp.Or(before.Created, b.revision)
		b.entries[c.Key] = leased{event.Entry, c.Lease}
		if !exists {
			b.keys = slices.Insert(b.keys, at, c.Key)
		}
	}
	b.log = append(b.log, event)
	if half := len(b.log) / 2; len(b.log) > maxLog {
		b.forgotten, b.log = b.log[half].Modified, slices.Clone(b.log[half+1:])
	}
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// Get implements coord.Backend.
func (b *Local) Get(ctx context.Context, key string) (coord.Entry, error) {
	if err := ctx.Err(); err != nil {
		return coord.Entry{}, err
	}
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	return b.entries[key].Entry, nil
}

// Range implements coord.Backend.
func (b *Local) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	return b.find(prefix), b.revision, nil
}

// RangeAll implements coord.Backend.
func (b *Local) RangeAll(ctx context.Context, prefixes ...string) ([][]coord.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(prefixes) > coord.MaxTransactions {
		return nil, fmt.Errorf("%d prefixes in one request, at most %d are allowed", len(prefixes), coord.MaxTransactions)
	}
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	all := make([][]coord.Entry, len(prefixes))
	for i, prefix := range prefixes {
		all[i] = b.find(prefix)
	}
	return all, nil
}

// find returns the entries whose keys begin with a prefix, sorted by key. The caller must hold storeMu.
func (b *Local) find(prefix string) (found []coord.Entry) {
	first, _ := slices.BinarySearch(b.keys, prefix)
	for _, key := range b.keys[first:] {
		if !strings.HasPrefix(key, prefix) {
			break
		}
		found = append(found, b.entries[key].Entry)
	}
	return found
}

// Watch implements coord.Backend.
func (b *Local) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	return func(yield func([]coord.Event, error) bool) {
		for {
			events, last, more, err := b.since(prefix, after)
			if err != nil {
				yield(nil, err)
				return
			}
			if after = last; len(events) > 0 && !yield(events, nil) {
				return
			}
			select {
			case <-more:
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			}
		}
	}
}

// since returns the events after a revision, the latest revision, and a channel that is closed when more events arrive.
func (b *Local) since(prefix string, after coord.Revision) (events []coord.Event, last coord.Revision, more <-chan struct{}, err error) {
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	if after < b.forgotten {
		return nil, 0, nil, coord.ErrCompacted
	}
	first, _ := slices.BinarySearchFunc(b.log, after+1, func(e coord.Event, r coord.Revision) int { return cmp.Compare(e.Modified, r) })
	for _, e := range b.log[first:] {
		if strings.HasPrefix(e.Key, prefix) {
			events = append(events, e)
		}
	}
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return events, b.revision, b.changed, nil
}
