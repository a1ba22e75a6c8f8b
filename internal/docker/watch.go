package docker

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/wake"
)

// Times of a Watch.
const (
	syncInterval = time.Minute            // between two lists, which correct what events have missed
	pingInterval = 5 * time.Second        // between two questions whether the runtime answers
	pingTimeout  = 5 * time.Second        // for the answer
	minRetry     = 100 * time.Millisecond // after the runtime was lost, doubled with each failure
	maxRetry     = 5 * time.Second
	minSync      = 100 * time.Millisecond // between two lists

	inspectors = 4 // calls of inspect at once
)

// Selector says which containers are followed: one by its ID or its name, or those that have all of the labels.
type Selector struct {
	ID     string
	Name   string
	Labels map[string]string
}

func (s Selector) matches(id, name string, labels map[string]string) bool {
	switch {
	case s.ID != "":
		return s.ID == id
	case s.Name != "":
		return s.Name == name || len(s.Name) >= minPrefix && strings.HasPrefix(id, s.Name)
	}
	for key, value := range s.Labels {
		if got, has := labels[key]; !has || got != value {
			return false
		}
	}
	return len(s.Labels) > 0
}

// minPrefix is how much of an ID people write.
const minPrefix = 12

// Seen is what a Watch knows about a container.
type Seen struct {
	Container
	Exit Exit // of the latest instance that has exited
}

// Exit is how an instance of a container has exited.
type Exit struct {
	StartedAt time.Time // of that instance; zero if none has
	Code      int       // -1 if it is not known
	OOMKilled bool
	Killed    bool // somebody had the runtime stop, restart or kill it
}

// Watch keeps those containers of a runtime up to date that somebody follows: by one stream of events, and by lists. It is
// safe for use by multiple goroutines.
type Watch struct {
	client *Client
	resync wake.Signal // a follower is new

	mu         sync.Mutex // guards the fields below, and the fields of followers and entries
	followers  map[*Follower]bool
	containers map[string]*entry
	stale      []string    // IDs to inspect
	inspect    wake.Signal // stale has become longer
	lost       error       // why the runtime is not seen now; nil if it is
	since      time.Time   // when lost has changed between nil and an error
}

// entry is a container of a Watch.
type entry struct {
	seen    Seen
	oomAt   time.Time // StartedAt of the instance that an oom event was about
	killAt  time.Time // the same of a kill event
	changes int       // of the container, by events; an answer of inspect from before the latest one does not count
	isStale bool      // its ID is in stale
}

// ErrNotListed is why a follower knows nothing yet.
var ErrNotListed = errors.New("the containers are not listed yet")

// NewWatch returns a watch of a client's runtime, which begins with Run.
func NewWatch(c *Client) *Watch {
	return &Watch{
		client: c, resync: wake.New(), inspect: wake.New(), followers: map[*Follower]bool{}, containers: map[string]*entry{},
		lost: ErrNotListed, since: time.Now(),
	}
}

// Follower follows containers of a Watch.
type Follower struct {
	watch    *Watch
	selector Selector
	changed  func()
	isListed bool // a list was read since it began
}

// Follow begins to follow containers. Changed is called after each change of what View returns. It must not block.
func (w *Watch) Follow(s Selector, changed func()) *Follower {
	f := &Follower{watch: w, selector: s, changed: changed}
	w.mu.Lock()
	w.followers[f] = true
	w.mu.Unlock()
	w.resync.Set()
	return f
}

// Close ends what Follow has begun.
func (f *Follower) Close() {
	f.watch.mu.Lock()
	delete(f.watch.followers, f)
	f.watch.mu.Unlock()
}

// View is what is known about the containers that are followed.
type View struct {
	Containers []Seen    // as they were seen last, by name
	Lost       error     // why the runtime cannot be seen now; nil if it is
	Since      time.Time // when that began
	IsListed   bool      // Containers has all of them, or had when the runtime was lost
}

// View returns what is known now.
func (f *Follower) View() View {
	w := f.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	v := View{Lost: w.lost, Since: w.since, IsListed: f.isListed}
	for id, e := range w.containers {
		if f.selector.matches(id, e.seen.Name, e.seen.Labels) {
			v.Containers = append(v.Containers, e.seen)
		}
	}
	slices.SortFunc(v.Containers, func(a, b Seen) int { return strings.Compare(a.Name, b.Name) })
	return v
}

// Find returns a container that somebody follows by its ID, and why the runtime is lost.
func (w *Watch) Find(is func(Container) bool) (c Container, found bool, lost error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.containers {
		if is(e.seen.Container) {
			return e.seen.Container, true, w.lost
		}
	}
	return Container{}, false, w.lost
}

// Lost returns since when and why the runtime cannot be seen now; nil if it is, or if it has not been looked for yet.
func (w *Watch) Lost() (since time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost == nil || errors.Is(w.lost, ErrNotListed) {
		return w.since, nil
	}
	return w.since, w.lost
}

// Run watches the runtime until ctx is done. It returns the cause of ctx.
func (w *Watch) Run(ctx context.Context) error {
	for retry := minRetry; ; retry = min(2*retry, maxRetry) {
		began := time.Now()
		err := w.connect(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.setLost(err)
		if time.Since(began) > maxRetry {
			retry = minRetry
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(retry):
		}
	}
}

// setLost notes why the runtime is not seen now, or nil, and wakes all followers if that is new.
func (w *Watch) setLost(err error) {
	w.mu.Lock()
	if (err == nil) != (w.lost == nil) {
		w.since = time.Now()
	}
	w.lost = err
	changed := w.changedOf(func(*Follower) bool { return true })
	w.mu.Unlock()
	callAll(changed)
}

// changedOf returns the functions of some followers. It needs mu.
func (w *Watch) changedOf(is func(*Follower) bool) (changed []func()) {
	for f := range w.followers {
		if is(f) {
			changed = append(changed, f.changed)
		}
	}
	return changed
}

func callAll(functions []func()) {
	for _, f := range functions {
		f()
	}
}

// connect watches the runtime until it is lost, and returns why.
func (w *Watch) connect(ctx context.Context) error {
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	if err := w.ping(ctx); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer lose(nil)
	running.Go(func() { lose(w.keepPinging(ctx)) })
	stream, err := w.client.openEvents(ctx)
	if err != nil {
		return cmpCause(ctx, err)
	}
	running.Go(func() { lose(w.follow(ctx, stream)) })
	for range inspectors {
		running.Go(func() { lose(w.inspectStale(ctx)) })
	}
	for isFirst := true; ; isFirst = false {
		if err := w.sync(ctx, isFirst); err != nil {
			return cmpCause(ctx, err)
		}
		w.setLost(nil)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(minSync): // many followers begin at once
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.resync:
		case <-time.After(syncInterval):
		}
	}
}

// cmpCause returns why ctx is done, or else err.
func cmpCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (w *Watch) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return w.client.Ping(ctx)
}

// keepPinging returns when the runtime does not answer.
func (w *Watch) keepPinging(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pingInterval):
		}
		if err := w.ping(ctx); err != nil {
			return err
		}
	}
}

// follow reads the events until the stream breaks.
func (w *Watch) follow(ctx context.Context, stream io.ReadCloser) error {
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { _ = stream.Close() })()
	return w.client.failed(ctx, "GET /events", readEvents(stream, w.handle))
}

// handle notes an event.
func (w *Watch) handle(e event) {
	w.mu.Lock()
	changed := w.note(e)
	w.mu.Unlock()
	callAll(changed)
}

// note notes an event, and returns whom it concerns. It needs mu.
func (w *Watch) note(e event) []func() {
	known := w.containers[e.id]
	switch {
	case e.action == "rename":
		w.resync.Set()
		return nil
	case known == nil:
		if e.action == "start" { // whose labels only inspect tells: Podman's events lack them
			w.enqueue(e.id)
		}
		return nil
	case e.action == "destroy":
		known.exit(Exit{Code: -1})
		delete(w.containers, e.id)
		return w.changedOf(known.isOf)
	}
	if e.action != "kill" {
		known.changes++
		w.enqueue(e.id)
	}
	if e.at.Before(known.seen.State.StartedAt) { // it is about an earlier instance
		return nil
	}
	switch e.action {
	case "oom":
		known.oomAt = known.seen.State.StartedAt
	case "kill":
		known.killAt = known.seen.State.StartedAt
	case "die":
		known.exit(Exit{Code: e.code})
		return w.changedOf(known.isOf)
	}
	return nil
}

// exit notes that the instance has exited.
func (e *entry) exit(x Exit) {
	s := &e.seen.State
	if !s.Running {
		return
	}
	x.StartedAt = s.StartedAt
	x.OOMKilled = x.OOMKilled || e.oomAt.Equal(s.StartedAt)
	x.Killed = e.killAt.Equal(s.StartedAt)
	e.seen.Exit = x
	s.Running, s.Paused, s.Status, s.Pid, s.ExitCode = false, false, "exited", 0, x.Code
}

// isOf reports whether a follower follows the container.
func (e *entry) isOf(f *Follower) bool {
	return f.selector.matches(e.seen.ID, e.seen.Name, e.seen.Labels)
}

// isFollowed reports whether anybody follows a container. It needs mu.
func (w *Watch) isFollowed(id, name string, labels map[string]string) bool {
	for f := range w.followers {
		if f.selector.matches(id, name, labels) {
			return true
		}
	}
	return false
}
