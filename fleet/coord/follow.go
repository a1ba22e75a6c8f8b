package coord

import (
	"context"
	"sync"
	"time"
)

// follow calls a function that follows the backend, repeatedly until ctx is done. The function's context is canceled
// when this engine becomes a member or stops being one, and when changes were missed: a backend that was restored from a
// snapshot has lower revisions, and a watch from a future revision would wait forever. An error that the function
// returns is logged with message, at most once a minute; message must be a constant.
func (c *Coordinator) follow(ctx context.Context, message string, follow func(context.Context) error) {
	for ctx.Err() == nil {
		err, isStale := c.whileMember(ctx, follow)
		if isStale {
			continue
		}
		c.sparse.Warn(message, "engine", c.config.Name, "error", err)
		select {
		case <-time.After(c.config.TTL / 4):
		case <-ctx.Done():
		}
	}
}

// whileMember calls a function with a context that is canceled when the current membership, or the lack of one, changes.
// It returns the error of the function, and whether the context was canceled by then.
func (c *Coordinator) whileMember(ctx context.Context, follow func(context.Context) error) (err error, isStale bool) {
	_, changed := c.Lease()
	ctx, end := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-changed:
			end()
		case <-ctx.Done():
		}
	})
	err = follow(ctx)
	isStale = ctx.Err() != nil
	end()
	waiting.Wait()
	return err, isStale
}

// readTimeout bounds the first request of followEntries, unless it may read a lot: see Kind.ReadTimeout.
const readTimeout = 10 * time.Second

// followEntries calls changed with all entries of a prefix, and then with their changes, until ctx is done or the
// Backend returns an error. isAll is true only in the first call, which has all entries.
func (c *Coordinator) followEntries(ctx context.Context, prefix string, timeout time.Duration, changed func(events []Event, isAll bool)) error {
	sent := time.Now()
	reading, cancel := context.WithTimeout(ctx, timeout)
	entries, at, err := c.config.Backend.Range(reading, prefix)
	cancel()
	if err != nil {
		return err
	}
	c.hear(sent)
	all := make([]Event, 0, len(entries))
	for _, e := range entries {
		all = append(all, Event{Entry: e})
	}
	changed(all, true)
	for events, err := range c.config.Backend.Watch(ctx, prefix, at) {
		if err != nil {
			return err
		}
		changed(events, false)
	}
	return ctx.Err()
}
