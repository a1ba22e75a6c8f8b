package coord

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"
)

// Local is a Backend for engines of one process: for the only engine of a fleet, and for tests.
type Local struct {
	storeMu   sync.Mutex // guards all below
	entries   map[string]leased
	keys      []string // of entries, sorted
	leases    map[Lease]expiry
	revision  Revision
	lastLease Lease
	log       []Event
	logSize   int           // bytes of the values in log
	forgotten Revision      // of the latest event that is no longer in log
	changed   chan struct{} // closed with the next event; nil if no one waits
}

// leased is an entry with its lease.
type leased struct {
	Entry
	lease Lease
}

// expiry is the end of a lease.
type expiry struct {
	timer *time.Timer
	ttl   time.Duration
}

// Bounds of Local.log, of which the first half is forgotten beyond one of them. A watch that lags further
// ends.
const (
	maxLog     = 1 << 15
	maxLogSize = 16 << 20 // bytes of values
)

// NewLocal returns a Local without entries.
func NewLocal() *Local {
	return &Local{entries: map[string]leased{}, leases: map[Lease]expiry{}}
}

// Grant implements Backend.
func (b *Local) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
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

// KeepAlive implements Backend.
func (b *Local) KeepAlive(ctx context.Context, l Lease) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	end, exists := b.leases[l]
	if !exists || !end.timer.Stop() {
		return ErrLeaseEnded
	}
	end.timer.Reset(end.ttl)
	return nil
}

// Revoke implements Backend.
func (b *Local) Revoke(ctx context.Context, l Lease) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.expire(l)
	return nil
}

// expire ends a lease, and deletes its entries in one revision.
func (b *Local) expire(l Lease) {
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
			b.apply(Change{Key: key, Delete: true})
		}
	}
}

// Commit implements Backend.
func (b *Local) Commit(ctx context.Context, all ...Transaction) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := CheckCommit(all); err != nil {
		return nil, err
	}
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	for _, t := range all {
		for _, c := range t.Then {
			if _, exists := b.leases[c.Lease]; c.Lease != 0 && !exists {
				return nil, ErrLeaseEnded
			}
		}
	}
	b.revision++
	made := make([]bool, len(all))
	for i, t := range all {
		made[i] = !slices.ContainsFunc(t.If, func(c Condition) bool { return !c.Holds(b.entries[c.Key].Entry) })
		if !made[i] {
			continue
		}
		for _, c := range t.Then {
			b.apply(c)
		}
	}
	return made, nil
}

// apply makes a change by the present revision. It needs storeMu.
func (b *Local) apply(c Change) {
	before, exists := b.entries[c.Key]
	if c.Delete && !exists {
		return
	}
	event := Event{Entry{Key: c.Key, Modified: b.revision}, c.Delete}
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
	if b.logSize += len(event.Value); len(b.log) > maxLog || b.logSize > maxLogSize {
		b.forget(len(b.log) / 2)
	}
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// forget forgets the event of the log at an index, and those before it. It needs storeMu.
func (b *Local) forget(i int) {
	b.forgotten = b.log[i].Modified
	for _, e := range b.log[:i+1] {
		b.logSize -= len(e.Value)
	}
	b.log = slices.Clone(b.log[i+1:])
}

// Get implements Backend.
func (b *Local) Get(ctx context.Context, key string) (Entry, error) {
	if err := ctx.Err(); err != nil {
		return Entry{}, err
	}
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	return b.entries[key].Entry, nil
}

// Range implements Backend.
func (b *Local) Range(ctx context.Context, prefix string) ([]Entry, Revision, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	return b.find(prefix), b.revision, nil
}

// RangeAll implements Backend.
func (b *Local) RangeAll(ctx context.Context, prefixes ...string) ([][]Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(prefixes) > MaxTransactions {
		return nil, fmt.Errorf("%d prefixes in one request, at most %d are allowed", len(prefixes), MaxTransactions)
	}
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	all := make([][]Entry, len(prefixes))
	for i, prefix := range prefixes {
		all[i] = b.find(prefix)
	}
	return all, nil
}

// find returns the entries whose keys begin with a prefix, sorted. It needs storeMu.
func (b *Local) find(prefix string) (found []Entry) {
	first, _ := slices.BinarySearch(b.keys, prefix)
	for _, key := range b.keys[first:] {
		if !strings.HasPrefix(key, prefix) {
			break
		}
		found = append(found, b.entries[key].Entry)
	}
	return found
}

// Watch implements Backend.
func (b *Local) Watch(ctx context.Context, prefix string, after Revision) iter.Seq2[[]Event, error] {
	return func(yield func([]Event, error) bool) {
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

// since returns the events after a revision, the latest revision, and a channel that is closed when
// there are more.
func (b *Local) since(prefix string, after Revision) (events []Event, last Revision, more <-chan struct{}, err error) {
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	if after < b.forgotten {
		return nil, 0, nil, ErrCompacted
	}
	first, _ := slices.BinarySearchFunc(b.log, after+1, func(e Event, r Revision) int { return cmp.Compare(e.Modified, r) })
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
