package docker

import (
	"context"
	"errors"
	"io"
	"maps"
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

// enqueue has a container inspected. It needs mu.
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

// inspectOne inspects a container, and notes what it is now.
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

// store notes what a container is now, and returns whom it concerns. It needs mu.
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

// sync reads the list of containers, and inspects those that are new or have changed; the first time, all that are followed.
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

// listTries is how often a list is asked for that the runtime refuses.
const listTries = 5

// list returns the containers. Podman refuses to list them while one of them is being removed.
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

// reconcile forgets containers that are not in a list, and returns the IDs of those to inspect.
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
		case w.isFollowed(id, e.seen.Name, e.seen.Labels): // it was created since, or is removed
			ids = append(ids, id)
		default:
			delete(w.containers, id)
		}
	}
	return ids
}

// inspectAll inspects containers, some at once.
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

// Add notes a container that was started just now, and which the stream of events may not have brought yet.
func (w *Watch) Add(c Container) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.containers[c.ID]; e != nil && !c.State.StartedAt.After(e.seen.State.StartedAt) || !w.isFollowed(c.ID, c.Name, c.Labels) {
		return
	}
	w.store(c)
	w.enqueue(c.ID) // it may have exited meanwhile
}

// Recheck has a container inspected that is followed.
func (w *Watch) Recheck(id string) {
	w.mu.Lock()
	w.enqueue(id)
	w.mu.Unlock()
}
