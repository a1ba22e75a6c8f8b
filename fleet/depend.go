package fleet

import (
	"context"
	"sync"
	"time"
)

// What happens to a target of another engine is known here after storeDelay, while both reach the store. If its owner
// has died, that is noticed when its lease ends, and another engine takes the target over within takeOverDelay.
const (
	storeDelay    = 3 * time.Second
	takeOverDelay = time.Second
)

// freshInterval is how often it is asked whether what other engines have stored is fresh.
const freshInterval = 250 * time.Millisecond

// followDependencies has targets of other engines explain failures of those of this engine that depend on them, as long
// as the store says how they are: without it, one that was failing then would explain failures for ever.
func (f *Fleet) followDependencies(ctx context.Context) {
	delay := f.config.Coordinator.TTL() + takeOverDelay + storeDelay
	for f.awaitFresh(ctx, true) {
		following, stop := context.WithCancel(ctx)
		var ended sync.WaitGroup
		ended.Go(func() { f.config.Engine.Admin().FollowDependencies(following, f.others.engine, delay) })
		isStale := f.awaitFresh(ctx, false)
		stop()
		ended.Wait()
		if isStale { // at the end of this engine states stay as they are
			f.config.Engine.Admin().UnfollowDependencies()
		}
	}
}

// awaitFresh returns true when what Others shows is fresh, or no longer is, and false when ctx is done.
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

// isFresh reports whether Others is as the store has said within two TTLs.
func (f *Fleet) isFresh() bool {
	heard := f.Heard()
	return !heard.IsZero() && time.Since(heard) <= 2*f.config.Coordinator.TTL()
}
