package coord

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
)

// observe returns a Backend that calls restored when Range finds a lower revision than Range and Watch have shown
// before: the backend was restored from a snapshot, and has lost what was put since. A watch that is under way is silent
// then, and a lease that the snapshot has goes on, so that what was read has to be read anew. A backend that has had as
// many changes since it was restored as it has lost is not noticed, unless its watches end. The function is called once
// for each restore, by the goroutine that has called Range.
func observe(b Backend, restored func()) Backend { return &observed{Backend: b, restored: restored} }

// observed is a Backend that notices when it was restored.
type observed struct {
	Backend
	latest   atomic.Int64 // the highest Revision that was seen since the Backend was restored
	restored func()
}

// errRestored is why what was read from a Backend has to be read anew: see observe.
var errRestored = errors.New("the store has a lower revision than before: it was restored from a snapshot")

// Range implements Backend.
func (b *observed) Range(ctx context.Context, prefix string) ([]Entry, Revision, error) {
	before := b.latest.Load() // not later: what is seen while the request is made may be newer than its answer
	entries, at, err := b.Backend.Range(ctx, prefix)
	switch {
	case err != nil:
	case int64(at) < before:
		if b.latest.CompareAndSwap(before, int64(at)) {
			b.restored()
		}
	default:
		b.see(at)
	}
	return entries, at, err
}

// Watch implements Backend.
func (b *observed) Watch(ctx context.Context, prefix string, after Revision) iter.Seq2[[]Event, error] {
	return func(yield func([]Event, error) bool) {
		for events, err := range b.Backend.Watch(ctx, prefix, after) {
			if len(events) > 0 {
				b.see(events[len(events)-1].Modified)
			}
			if !yield(events, err) {
				return
			}
		}
	}
}

// see notes a revision.
func (b *observed) see(r Revision) {
	for latest := b.latest.Load(); int64(r) > latest && !b.latest.CompareAndSwap(latest, int64(r)); latest = b.latest.Load() {
	}
}
