package coord

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
)

// observe returns a Backend that calls restored when Range returns a lower revision than earlier calls of Range and
// Watch: the backend was restored from a snapshot, and has lost later entries. In that case watches under way stay
// silent, and leases in the snapshot remain valid, so that everything must be read again. A restore remains undetected
// if the backend has already had as many changes since as it lost, unless its watches end. restored is called once per
// restore, on the goroutine that called Range.
func observe(b Backend, restored func()) Backend { return &observed{Backend: b, restored: restored} }

// observed is a Backend that detects that it was restored.
type observed struct {
	Backend
	latest   atomic.Int64 // the highest Revision seen since the last restore
	restored func()
}

// errRestored is the reason why everything must be read from a Backend again: see observe.
var errRestored = errors.New("the store was restored from a snapshot: its revision is lower than before")

// Range implements Backend.
func (b *observed) Range(ctx context.Context, prefix string) ([]Entry, Revision, error) {
	before := b.latest.Load() // read before the request: revisions seen meanwhile may be newer than the response
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
