package docker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// enqueue marks a container as stale, so that it is inspected. It needs mu.
func (w *Watch) enqueue(id string) {
	if e := w.containers[id]; e != nil {
		if e.isStale {
			return
		}
		e.isStale = true
	} else if slices.Contains(w.stale, id) {
		return
	}
	w.stale = append(w.stale, id)
	w.inspect.Set()
}

// inspectStale inspects containers after events about them, until ctx is done or the runtime is lost.
func (w *Watch) inspectStale(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.inspect:
		}
		for id := range w.takeStale {
			if err := w.inspectOne(ctx, id); err != nil {
				return err
			}
		}
	}
}

// takeStale yields the IDs of stale containers.
func (w *Watch) takeStale(yield func(string) bool) {
	for {
		w.mu.Lock()
		if len(w.stale) == 0 {
			w.mu.Unlock()
			return
		}
		id := w.stale[0]
		w.stale = w.stale[1:]
		if len(w.stale) > 0 {
			w.inspect.Set() // for the next inspector
		}
		if e := w.containers[id]; e != nil {
			e.isStale = false
		}
		w.mu.Unlock()
		if !yield(id) {
			return
		}
	}
}

// inspectOne inspects a container, and stores its new state.
func (w *Watch) inspectOne(ctx context.Context, id string) error {
	w.mu.Lock()
	before := w.changesOf(id)
	w.mu.Unlock()
	c, err := w.client.Inspect(ctx, id)
	if err != nil && !isNotFound(err) {
		return err
	}
	w.mu.Lock()
	var changed []func()
	switch {
	case w.changesOf(id) != before: // it is stale again
	case err != nil:
		if e := w.containers[id]; e != nil {
			e.exit(Exit{Code: -1})
			delete(w.containers, id)
			changed = w.changedOf(e.isOf)
		}
	case w.isFollowed(c.ID, c.Name, c.Labels):
		changed = w.store(c)
	default:
		delete(w.containers, id)
	}
	w.mu.Unlock()
	callAll(changed)
	return nil
}

// changesOf returns the number of events of a container. It needs mu.
func (w *Watch) changesOf(id string) int {
	if e := w.containers[id]; e != nil {
		return e.changes
	}
	return 0
}

// store stores the new state of a container, and returns the functions of its followers. It needs mu.
func (w *Watch) store(c Container) []func() {
	e := w.containers[c.ID]
	if e == nil {
		e = &entry{}
		w.containers[c.ID] = e
	}
	old := e.seen.State
	switch {
	case old.Running && !old.StartedAt.Equal(c.State.StartedAt):
		e.exit(Exit{Code: -1}) // and it was started again
	case old.Running && !c.State.Running:
		e.exit(Exit{Code: c.State.ExitCode, OOMKilled: c.State.OOMKilled})
	case !c.State.Running && e.seen.Exit.StartedAt.Equal(c.State.StartedAt):
		e.seen.Exit.OOMKilled = e.seen.Exit.OOMKilled || c.State.OOMKilled
	}
	e.seen.Container = c
	return w.changedOf(e.isOf)
}

// sync reads the list of containers, and inspects the new and changed ones. The first time it inspects all followed
// ones.
func (w *Watch) sync(ctx context.Context, isFirst bool) error {
	w.mu.Lock()
	present := slices.Collect(maps.Keys(w.followers))
	w.mu.Unlock()
	list, err := w.list(ctx)
	if err != nil {
		return err
	}
	if err := w.inspectAll(ctx, w.reconcile(list, isFirst)); err != nil {
		return err
	}
	w.mu.Lock()
	for _, f := range present {
		f.isListed = true
	}
	changed := w.changedOf(func(f *Follower) bool { return slices.Contains(present, f) })
	w.mu.Unlock()
	callAll(changed)
	return nil
}

// listTries is the number of attempts to list containers if the runtime refuses.
const listTries = 5

// list returns the containers. It retries because Podman refuses to list containers while one is being removed.
func (w *Watch) list(ctx context.Context) (list []Listed, err error) {
	for try := range listTries {
		var answer *Error
		if list, err = w.client.List(ctx, nil); err == nil || !errors.As(err, &answer) || answer.Status == 0 {
			return list, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(minSync << try):
		}
	}
	return list, err
}

// reconcile discards containers that nobody follows any more, and returns the IDs of the containers to inspect.
func (w *Watch) reconcile(list []Listed, isFirst bool) (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	listed := map[string]bool{}
	for _, l := range list {
		name := ""
		if len(l.Names) > 0 {
			name = strings.TrimPrefix(l.Names[0], "/")
		}
		if !w.isFollowed(l.ID, name, l.Labels) {
			continue
		}
		listed[l.ID] = true
		e := w.containers[l.ID]
		if e == nil || isFirst || l.isRecent() || e.seen.State.Status != l.State || e.seen.Name != name {
			ids = append(ids, l.ID)
		}
	}
	for id, e := range w.containers {
		switch {
		case listed[id]:
		case w.isFollowed(id, e.seen.Name, e.seen.Labels): // it was created after the list, or was removed
			ids = append(ids, id)
		default:
			delete(w.containers, id)
		}
	}
	return ids
}

// inspectAll inspects containers, a few concurrently.
func (w *Watch) inspectAll(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan string)
	var running sync.WaitGroup
	for range min(inspectors, len(ids)) {
		running.Go(func() {
			for id := range next {
				if err := w.inspectOne(ctx, id); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, id := range ids {
		if ctx.Err() != nil {
			break
		}
		next <- id
	}
	close(next)
	running.Wait()
	return context.Cause(ctx)
}

// Add stores a container that was just started, whose event may not have arrived yet.
func (w *Watch) Add(c Container) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.containers[c.ID]; e != nil && !c.State.StartedAt.After(e.seen.State.StartedAt) || !w.isFollowed(c.ID, c.Name, c.Labels) {
		return
	}
	w.store(c)
	w.enqueue(c.ID) // it may have exited in the meantime
}

// Recheck triggers the inspection of a followed container.
func (w *Watch) Recheck(id string) {
	w.mu.Lock()
	w.enqueue(id)
	w.mu.Unlock()
}
