package coord

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/wake"
)

// Kind describes the entries of a Mirror. Its functions must not block or wait for the Mirror.
type Kind[V any] struct {
	Keys        Keys          // required
	MaxValue    int           // bounds a value, in bytes; a longer one is parsed as an empty one; default MaxRequest
	ReadTimeout time.Duration // bounds the request that reads all entries; default readTimeout
	Problem     string        // log message while the entries cannot be read: a constant

	// Parse returns the value of an entry. For an entry that no engine of this release has written, it returns a V that
	// shows this. before is the previous value, or the zero V. Default: V is decoded from JSON, and is zero if that fails.
	Parse func(name string, e Entry, before V) V

	// Changed is called after the Mirror has changed, from one goroutine at a time. isAll means that all entries were read:
	// changes has each of them, and those that were removed since the previous read. Default: nothing is called.
	Changed func(changes []ItemChange[V], isAll bool)

	// Own returns the value that an entry of this engine should have now, or nil for none. It is called for marked names
	// (see Mirror.Mark) from one goroutine at a time, during the membership with lease l, with which the value is put.
	// Default: this engine puts no entries.
	Own        func(name string, l Lease) []byte
	Self       string // the name of this engine's entry; the names of its other entries begin with that and a slash; default: the name of this engine
	OwnProblem string // log message while they cannot be put: a constant
}

// Item is an entry of a Mirror.
type Item[V any] struct {
	Value    V
	Modified Revision // of its latest change; 0: the entry does not exist
}

// ItemChange is a change to an entry. Before is zero if the entry was added; Now is zero if it was removed.
type ItemChange[V any] struct {
	Name        string
	Before, Now Item[V]
}

// Mirror is a typed map of the entries of a Kind, as the Backend shows them: see NewMirror. While the Backend is
// unreachable, it stays unchanged. Its methods are safe for concurrent use by multiple goroutines.
type Mirror[V any] struct {
	co     *Coordinator
	kind   Kind[V]
	wake   wake.Signal   // set when an entry is marked and may be put
	synced chan struct{} // closed by read
	read   func()

	itemsMu sync.Mutex // guards all below
	items   map[string]Item[V]
	state   MirrorState
	heard   time.Time        // see Heard
	own     map[string]Entry // entries of this engine, if Kind.Own is set
	marked  map[string]bool  // names of own entries that may differ from the Backend's
}

// MirrorState is how current a Mirror is.
type MirrorState struct {
	ReadAt time.Time // when the entries were read; their changes are followed since; zero: changes may be missing
	Lease  Lease     // of the membership since then; 0 for none
}

// The limits of requests that put entries.
const (
	putTimeout = 10 * time.Second
	retryAfter = time.Second // after a failed request
)

// NewMirror returns a Mirror, which is empty until it runs.
func NewMirror[V any](c *Coordinator, k Kind[V]) *Mirror[V] {
	k.MaxValue, k.ReadTimeout = cmp.Or(k.MaxValue, MaxRequest), cmp.Or(k.ReadTimeout, readTimeout)
	k.Self = cmp.Or(k.Self, c.Name())
	if k.Parse == nil {
		k.Parse = func(_ string, e Entry, _ V) (v V) {
			if json.Unmarshal(e.Value, &v) != nil {
				return *new(V)
			}
			return v
		}
	}
	if k.Changed == nil {
		k.Changed = func([]ItemChange[V], bool) {}
	}
	synced := make(chan struct{})
	return &Mirror[V]{
		co: c, kind: k, wake: wake.New(), synced: synced, read: sync.OnceFunc(func() { close(synced) }),
		items: map[string]Item[V]{}, own: map[string]Entry{}, marked: map[string]bool{},
	}
}

// Run follows the entries, and puts those of this engine, until ctx is done. It must not be called again before it
// returns.
func (m *Mirror[V]) Run(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer end() // also after a panic
	if m.kind.Own != nil {
		parts.Go(func() { m.putMarked(ctx) })
	}
	m.co.follow(ctx, m.kind.Problem, func(ctx context.Context) error {
		lease, _ := m.co.Lease() // when it changes, ctx is canceled
		defer m.outdate()
		return m.co.followEntries(ctx, m.kind.Keys.prefix, m.kind.ReadTimeout, func(events []Event, isAll bool) { m.apply(lease, events, isAll) })
	})
}

// outdate records that changes may be missing from now on.
func (m *Mirror[V]) outdate() {
	heard := m.Heard()
	m.itemsMu.Lock()
	defer m.itemsMu.Unlock()
	m.heard, m.state = heard, MirrorState{}
}

// apply applies events that were read during the membership with a lease, and notifies waiters.
func (m *Mirror[V]) apply(l Lease, events []Event, isAll bool) {
	m.kind.Changed(m.note(events, isAll), isAll)
	if isAll {
		m.itemsMu.Lock()
		m.state = MirrorState{time.Now(), l}
		m.itemsMu.Unlock()
		m.read()
	}
	m.wake.Set()
}

// note applies events, and returns the resulting changes.
func (m *Mirror[V]) note(events []Event, isAll bool) (changes []ItemChange[V]) {
	m.itemsMu.Lock()
	defer m.itemsMu.Unlock()
	before := m.items
	if isAll {
		m.items, m.own = make(map[string]Item[V], len(events)), map[string]Entry{}
	}
	for _, e := range events {
		name, isName := m.kind.Keys.name(e.Key)
		if !isName {
			continue // not written by an engine
		}
		one := ItemChange[V]{Name: name, Before: before[name]}
		if m.kind.Own != nil && isOf(name, m.kind.Self) {
			m.marked[name], m.own[name] = true, e.Entry
		}
		if e.Deleted {
			delete(m.items, name)
			delete(m.own, name)
		} else {
			if len(e.Value) > m.kind.MaxValue {
				e.Value = nil
			}
			one.Now = Item[V]{m.kind.Parse(name, e.Entry, one.Before.Value), e.Modified}
			m.items[name] = one.Now
		}
		changes = append(changes, one)
	}
	if !isAll {
		return changes
	}
	for name, item := range before {
		if _, exists := m.items[name]; !exists {
			changes = append(changes, ItemChange[V]{Name: name, Before: item})
		}
	}
	return changes
}

// Synced returns a channel that is closed after the entries were first read and passed to Kind.Changed.
func (m *Mirror[V]) Synced() <-chan struct{} { return m.synced }

// State returns how current the entries are.
func (m *Mirror[V]) State() MirrorState {
	m.itemsMu.Lock()
	defer m.itemsMu.Unlock()
	return m.state
}

// Heard returns when the Backend last responded to this engine while all changes were followed; zero if never.
func (m *Mirror[V]) Heard() time.Time {
	heard := m.co.Heard()
	m.itemsMu.Lock()
	defer m.itemsMu.Unlock()
	if m.state.ReadAt.IsZero() {
		return m.heard
	}
	return heard
}

// Get returns an entry, or the zero Item if there is none.
func (m *Mirror[V]) Get(name string) Item[V] {
	m.itemsMu.Lock()
	defer m.itemsMu.Unlock()
	return m.items[name]
}

// All returns the entries by name.
func (m *Mirror[V]) All() map[string]Item[V] {
	m.itemsMu.Lock()
	defer m.itemsMu.Unlock()
	return maps.Clone(m.items)
}

// Put returns the change of an entry to a value, nil to delete it, and the condition that the entry still has the shown
// revision. If the entry has changed meanwhile, the change is not made.
func (m *Mirror[V]) Put(name string, shown Revision, value []byte, l Lease) (Condition, Change) {
	key := m.kind.Keys.Key(name)
	return Condition{Key: key, Modified: shown}, Change{Key: key, Value: value, Lease: l, Delete: value == nil}
}

// Mark marks entries of this engine. They are compared with the values that Kind.Own returns, and put if they differ.
func (m *Mirror[V]) Mark(names ...string) {
	m.remark(names)
	m.wake.Set()
}

// remark marks entries for the next time that entries are put, without triggering it.
func (m *Mirror[V]) remark(names []string) {
	m.itemsMu.Lock()
	defer m.itemsMu.Unlock()
	for _, name := range names {
		m.marked[name] = true
	}
}

// putMarked puts the marked entries until ctx is done, once the entries were read during the current membership. They
// stay in the Backend until the membership ends.
func (m *Mirror[V]) putMarked(ctx context.Context) {
	for ctx.Err() == nil {
		lease, changed := m.co.Lease()
		var again <-chan time.Time
		if lease != 0 && m.State().Lease == lease && !m.put(ctx, lease) {
			again = time.After(retryAfter)
		}
		select {
		case <-m.wake:
		case <-changed:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// put puts the marked entries. It returns false if some must be tried again.
func (m *Mirror[V]) put(ctx context.Context, l Lease) (isDone bool) {
	for batch := m.take(); len(batch) > 0; batch = m.take() {
		if !m.commit(ctx, l, batch) {
			return false
		}
	}
	return true
}

// take returns the next marked entries of this engine, at most MaxTransactions, as they were last shown, and unmarks
// them.
func (m *Mirror[V]) take() map[string]Entry {
	m.itemsMu.Lock()
	defer m.itemsMu.Unlock()
	batch := map[string]Entry{}
	for name := range m.marked {
		if len(batch) == MaxTransactions {
			break
		}
		delete(m.marked, name)
		batch[name] = m.own[name]
	}
	return batch
}

// commit puts those entries of a batch whose values differ from the shown ones. It returns false if it could not put all
// of them, because of an error or since the Backend's entries have changed; it marks these again.
func (m *Mirror[V]) commit(ctx context.Context, l Lease, batch map[string]Entry) (isDone bool) {
	var differing []string
	var all []Transaction
	for name, shown := range batch {
		value := m.kind.Own(name, l)
		if bytes.Equal(value, shown.Value) {
			continue
		}
		condition, change := m.Put(name, shown.Modified, value, l)
		differing = append(differing, name)
		all = append(all, Transaction{If: []Condition{condition}, Then: []Change{change}})
	}
	if len(all) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	made, err := m.co.config.Backend.Commit(ctx, all...)
	if err != nil {
		if ctx.Err() == nil {
			m.co.sparse.Warn(m.kind.OwnProblem, "engine", m.co.config.Name, "error", err)
		}
		m.remark(differing)
		return false
	}
	for i, isMade := range made {
		if !isMade {
			m.remark(differing[i : i+1])
		}
	}
	return !slices.Contains(made, false)
}
