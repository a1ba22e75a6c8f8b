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
	sorted    []string // the keys of entries but those in added, beside some that were deleted
	added     []string // keys since find was called last, unsorted
	leases    map[Lease]*time.Timer
	ttls      map[Lease]time.Duration
	revision  Revision
	lastLease Lease
	log       []logged
	logSize   int           // bytes of the values in log
	forgotten Revision      // of the latest event that is no longer in log
	changed   chan struct{} // closed with the next event; nil if no one waits
}

// leased is an entry with its lease.
type leased struct {
	Entry
	lease Lease
}

// logged is an event with the revision that it was made by.
type logged struct {
	Event
	at Revision
}

// Bounds of Local.log, of which the first half is forgotten beyond one of them. A watch that lags further
// ends.
const (
	maxLog     = 1 << 15
	maxLogSize = 16 << 20 // bytes of values
)

// maxAdded bounds Local.added, in which a key is once more each time it is put after it was deleted.
const maxAdded = 1 << 15

// NewLocal returns a Local without entries.
func NewLocal() *Local {
	return &Local{entries: map[string]leased{}, leases: map[Lease]*time.Timer{}, ttls: map[Lease]time.Duration{}}
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
	b.ttls[l] = ttl
	b.leases[l] = time.AfterFunc(ttl, func() { b.expire(l) })
	return l, nil
}

// KeepAlive implements Backend.
func (b *Local) KeepAlive(ctx context.Context, l Lease) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.storeMu.Lock()
	defer b.storeMu.Unlock()
	timer := b.leases[l]
	if timer == nil || !timer.Stop() {
		return ErrLeaseEnded
	}
	timer.Reset(b.ttls[l])
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
	timer := b.leases[l]
	if timer == nil {
		return
	}
	timer.Stop()
	delete(b.leases, l)
	delete(b.ttls, l)
	var keys []string
	for key, e := range b.entries {
		if e.lease == l {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	b.revision++
	for _, key := range keys {
		b.apply(Change{Key: key, Delete: true})
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
			if c.Lease != 0 && b.leases[c.Lease] == nil {
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
	if c.Delete {
		delete(b.entries, c.Key)
	} else {
		event.Value, event.Created = slices.Clone(c.Value), cmp.Or(before.Created, b.revision)
		b.entries[c.Key] = leased{event.Entry, c.Lease}
		if !exists {
			if b.added = append(b.added, c.Key); len(b.added) > maxAdded {
				b.sort()
			}
		}
	}
	b.log = append(b.log, logged{event, b.revision})
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
	b.forgotten = b.log[i].at
	for _, l := range b.log[:i+1] {
		b.logSize -= len(l.Value)
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
	b.sort()
	first, _ := slices.BinarySearch(b.sorted, prefix)
	for _, key := range b.sorted[first:] {
		if !strings.HasPrefix(key, prefix) {
			break
		}
		if e, exists := b.entries[key]; exists {
			found = append(found, e.Entry)
		}
	}
	return found
}

// sort makes sorted the keys of entries, once for many that were added or deleted, such as those
// of all shards. It needs storeMu.
func (b *Local) sort() {
	if len(b.added) == 0 && len(b.sorted) < 2*len(b.entries) {
		return
	}
	all := append(b.sorted, b.added...)
	slices.Sort(all)
	b.sorted = slices.DeleteFunc(slices.Compact(all), func(key string) bool {
		_, exists := b.entries[key]
		return !exists
	})
	b.added = nil
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
	first, _ := slices.BinarySearchFunc(b.log, after+1, func(l logged, r Revision) int { return cmp.Compare(l.at, r) })
	for _, l := range b.log[first:] {
		if strings.HasPrefix(l.Key, prefix) {
			events = append(events, l.Event)
		}
	}
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return events, b.revision, b.changed, nil
}
