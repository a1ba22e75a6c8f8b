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
	syncInterval = time.Minute            // between two lists, in case events were missed
	pingInterval = 5 * time.Second        // between two checks whether the runtime responds
	pingTimeout  = 5 * time.Second        // for the response
	minRetry     = 100 * time.Millisecond // after the runtime was lost, doubled with each failure
	maxRetry     = 5 * time.Second
	minSync      = 100 * time.Millisecond // between two lists

	inspectors = 4 // number of concurrent calls of inspect
)

// Selector selects containers: one by its ID or its name, or all that have each of the labels.
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

// minPrefix is the minimum length of an ID prefix that is used in place of a name.
const minPrefix = 12

// Seen is the last known state of a container in a Watch.
type Seen struct {
	Container
	Exit Exit // of the latest instance that has exited
}

// Exit describes how an instance of a container exited.
type Exit struct {
	StartedAt time.Time // start of that instance; zero if none has exited
	Code      int       // -1 if unknown
	OOMKilled bool
	Killed    bool // somebody stopped, restarted or killed it by the runtime
}

// Watch keeps the state of a runtime's followed containers up to date, by one stream of events and by lists. It is safe
// for concurrent use.
type Watch struct {
	client *Client
	resync wake.Signal // there is a new follower

	mu         sync.Mutex // guards the fields below, and the fields of followers and entries
	followers  map[*Follower]bool
	containers map[string]*entry
	stale      []string    // IDs to inspect
	inspect    wake.Signal // set when stale grows
	lost       error       // why the runtime is unreachable; nil if it is reachable
	since      time.Time   // when lost last changed between nil and an error
}

// entry is the state of one container that a Watch tracks.
type entry struct {
	seen    Seen
	oomAt   time.Time // StartedAt of the instance that an oom event was about
	killAt  time.Time // the same for a kill event
	changes int       // number of events; a response of inspect that began before the latest event is ignored
	isStale bool      // its ID is in stale
}

// ErrNotListed is the error of a view before the first list.
var ErrNotListed = errors.New("containers have not been listed yet")

// NewWatch returns a watch of a client's runtime. Run starts it.
func NewWatch(c *Client) *Watch {
	return &Watch{
		client: c, resync: wake.New(), inspect: wake.New(), followers: map[*Follower]bool{}, containers: map[string]*entry{},
		lost: ErrNotListed, since: time.Now(),
	}
}

// Follower is a subscription to containers of a Watch.
type Follower struct {
	watch    *Watch
	selector Selector
	changed  func()
	isListed bool // a list was read since it was created
}

// Follow subscribes to containers. changed is called after each change of the View. It must not block.
func (w *Watch) Follow(s Selector, changed func()) *Follower {
	f := &Follower{watch: w, selector: s, changed: changed}
	w.mu.Lock()
	w.followers[f] = true
	w.mu.Unlock()
	w.resync.Set()
	return f
}

// Close ends the subscription.
func (f *Follower) Close() {
	f.watch.mu.Lock()
	delete(f.watch.followers, f)
	f.watch.mu.Unlock()
}

// View is the last known state of the selected containers.
type View struct {
	Containers []Seen    // their last known state, sorted by name
	Lost       error     // why the runtime is unreachable; nil if it is reachable
	Since      time.Time // when it became unreachable or reachable
	IsListed   bool      // Containers is complete, or was when the runtime was lost
}

// View returns the current view.
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

// Find returns a followed container for which is returns true, and why the runtime is lost, if it is.
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

// Lost returns why, and since when, the runtime is unreachable. The error is nil if it is reachable, or before the
// first list.
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

// setLost records why the runtime is unreachable, or nil, and notifies all followers.
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

// changedOf returns the changed functions of the followers for which is returns true. It needs mu.
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

// connect watches the runtime until it is lost, and returns the cause.
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
		case <-time.After(minSync): // many followers begin at the same time
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.resync:
		case <-time.After(syncInterval):
		}
	}
}

// cmpCause returns the cause of ctx if it is done, otherwise err.
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

// keepPinging returns an error when the runtime does not respond.
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

// handle processes an event.
func (w *Watch) handle(e event) {
	w.mu.Lock()
	changed := w.note(e)
	w.mu.Unlock()
	callAll(changed)
}

// note applies an event to the containers, and returns the functions of the followers to notify. It needs mu.
func (w *Watch) note(e event) []func() {
	known := w.containers[e.id]
	switch {
	case e.action == "rename":
		w.resync.Set()
		return nil
	case known == nil:
		if e.action == "start" { // Podman's events lack the labels, so it must be inspected
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
		if known.seen.isStoppedBy(e.signal) {
			known.killAt = known.seen.State.StartedAt
		}
	case "die":
		known.exit(Exit{Code: e.code})
		return w.changedOf(known.isOf)
	}
	return nil
}

// exit records that the instance has exited.
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

// isFollowed reports whether any follower follows a container. It needs mu.
func (w *Watch) isFollowed(id, name string, labels map[string]string) bool {
	for f := range w.followers {
		if f.selector.matches(id, name, labels) {
			return true
		}
	}
	return false
}
