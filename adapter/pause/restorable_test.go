package pause

import (
	"context"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/coord"
)

// restorable is a coord.Backend that can be restored from a backup: its revisions begin anew, as those of etcd do without
// --bump-revision, it has no leases, and what was watched goes on silently.
type restorable struct {
	storeMu  sync.Mutex // guards the fields below
	now      *coord.Local
	restored coord.Lease // how often it was
}

func newRestorable() *restorable { return &restorable{now: coord.NewLocal()} }

// leaseShift is where a lease has how often the store had been restored before.
const leaseShift = 32

func (r *restorable) local() (*coord.Local, coord.Lease) {
	r.storeMu.Lock()
	defer r.storeMu.Unlock()
	return r.now, r.restored << leaseShift
}

// backup returns what the store has of pauses, without their leases.
func (r *restorable) backup(t *testing.T) []coord.Entry {
	t.Helper()
	b, _ := r.local()
	all, _, err := b.Range(t.Context(), "pause/")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (r *restorable) restore(t *testing.T, backup []coord.Entry) {
	t.Helper()
	next := coord.NewLocal()
	for _, e := range backup {
		if _, err := next.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: e.Key, Value: e.Value}}}); err != nil {
			t.Fatal(err)
		}
	}
	r.storeMu.Lock()
	defer r.storeMu.Unlock()
	r.now = next
	r.restored++
}

// order returns what the store has for a target.
func (r *restorable) order(t *testing.T, target string) Order {
	t.Helper()
	for _, e := range r.backup(t) {
		if len(e.Key) > len(target) && e.Key[len(e.Key)-len(target)-1:] == "/"+target {
			return unmarshal(e.Value)
		}
	}
	return Order{}
}

func (r *restorable) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	b, restored := r.local()
	l, err := b.Grant(ctx, ttl)
	return l | restored, err
}

func (r *restorable) KeepAlive(ctx context.Context, l coord.Lease) error {
	b, restored := r.local()
	if l&^(1<<leaseShift-1) != restored {
		return coord.ErrLeaseEnded
	}
	return b.KeepAlive(ctx, l&^restored)
}

func (r *restorable) Revoke(ctx context.Context, l coord.Lease) error {
	b, restored := r.local()
	if l&^(1<<leaseShift-1) != restored {
		return nil
	}
	return b.Revoke(ctx, l&^restored)
}

func (r *restorable) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	b, restored := r.local()
	own := make([]coord.Transaction, len(all))
	for i, t := range all {
		own[i].If = t.If
		for _, c := range t.Then {
			if c.Lease != 0 && c.Lease&^(1<<leaseShift-1) != restored {
				return nil, coord.ErrLeaseEnded
			}
			c.Lease &^= restored
			own[i].Then = append(own[i].Then, c)
		}
	}
	return b.Commit(ctx, own...)
}

func (r *restorable) Get(ctx context.Context, key string) (coord.Entry, error) {
	b, _ := r.local()
	return b.Get(ctx, key)
}

func (r *restorable) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	b, _ := r.local()
	return b.Range(ctx, prefix)
}

func (r *restorable) RangeAll(ctx context.Context, prefixes ...string) ([][]coord.Entry, error) {
	b, _ := r.local()
	return b.RangeAll(ctx, prefixes...)
}

func (r *restorable) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	b, _ := r.local()
	return b.Watch(ctx, prefix, after)
}
