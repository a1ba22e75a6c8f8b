package fleet

import (
	"context"
	"sync"
	"time"
)

// A change of another engine's target is visible here within storeDelay, while both engines reach the store. If the
// owner of the target has died, its lease must expire first; then another engine takes the target over within
// takeOverDelay.
const (
	storeDelay    = 3 * time.Second
	takeOverDelay = time.Second
)

// freshInterval is how often followDependencies checks that the stored states of other engines' targets are fresh.
const freshInterval = 250 * time.Millisecond

// followDependencies lets targets of other engines explain failures of this engine's targets that depend on them, as
// long as their stored states are fresh: otherwise a target that was failing when the store became unreachable would
// explain failures forever.
func (f *Fleet) followDependencies(ctx context.Context) {
	delay := f.config.Coordinator.TTL() + takeOverDelay + storeDelay
	for f.awaitFresh(ctx, true) {
		following, stop := context.WithCancel(ctx)
		var ended sync.WaitGroup
		ended.Go(func() { f.config.Engine.Admin().FollowDependencies(following, f.others.engine, delay) })
		isStale := f.awaitFresh(ctx, false)
		stop()
		ended.Wait()
		if isStale { // when this engine stops, states stay as they are
			f.config.Engine.Admin().UnfollowDependencies()
		}
	}
}

// awaitFresh returns true once the freshness of Others equals want, and false when ctx is done.
func (f *Fleet) awaitFresh(ctx context.Context, want bool) bool {
	ticker := time.NewTicker(freshInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if f.isFresh() == want {
			return true
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	return false
}

// isFresh reports whether Others was up to date with the store within the last two TTLs.
func (f *Fleet) isFresh() bool {
	heard := f.Heard()
	return !heard.IsZero() && time.Since(heard) <= 2*f.config.Coordinator.TTL()
}
