package revision_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/revision"
)

// restorable is a Backend that can be restored from a snapshot, as etcd without --bump-revision: its revisions are lower
// then, watches that are under way are silent, and leases that the snapshot has go on. No lease may expire before that.
type restorable struct {
	changesMu sync.Mutex // guards all below
	local     *coord.Local
	changes   []func(*coord.Local) // all since the store was empty, in their order
	granted   coord.Lease          // the highest lease
	lost      coord.Lease          // leases above it, up to lostTo, are not in the snapshot
	lostTo    coord.Lease
}

func newRestorable() *restorable { return &restorable{local: coord.NewLocal()} }

// snapshot says how far the changes of a store went.
type snapshot struct {
	changes int
	granted coord.Lease
}

func (b *restorable) snapshot() snapshot {
	b.changesMu.Lock()
	defer b.changesMu.Unlock()
	return snapshot{len(b.changes), b.granted}
}

// restore makes the same changes again, up to those of a snapshot.
func (b *restorable) restore(s snapshot) {
	b.changesMu.Lock()
	defer b.changesMu.Unlock()
	b.local, b.changes = coord.NewLocal(), b.changes[:s.changes]
	for _, change := range b.changes {
		change(b.local)
	}
	b.lost, b.lostTo = s.granted, b.granted
	for range b.lostTo - b.lost { // no new lease has the name of a lost one
		_, _ = b.local.Grant(context.Background(), 1000*time.Hour)
	}
}

// change makes a change, unless it needs a lease that was lost.
func change[T any](b *restorable, l coord.Lease, change func(*coord.Local) (T, error)) (result T, err error) {
	b.changesMu.Lock()
	defer b.changesMu.Unlock()
	if l > b.lost && l <= b.lostTo {
		return result, coord.ErrLeaseEnded
	}
	b.changes = append(b.changes, func(to *coord.Local) { _, _ = change(to) })
	return change(b.local)
}

func (b *restorable) now() *coord.Local {
	b.changesMu.Lock()
	defer b.changesMu.Unlock()
	return b.local
}

func (b *restorable) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	return change(b, 0, func(to *coord.Local) (coord.Lease, error) {
		l, err := to.Grant(context.WithoutCancel(ctx), ttl)
		b.granted = max(b.granted, l)
		return l, err
	})
}

func (b *restorable) KeepAlive(ctx context.Context, l coord.Lease) error {
	_, err := change(b, l, func(to *coord.Local) (struct{}, error) {
		return struct{}{}, to.KeepAlive(context.WithoutCancel(ctx), l)
	})
	return err
}

func (b *restorable) Revoke(ctx context.Context, l coord.Lease) error {
	_, err := change(b, l, func(to *coord.Local) (struct{}, error) { return struct{}{}, to.Revoke(context.WithoutCancel(ctx), l) })
	return err
}

func (b *restorable) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	return change(b, all[0].Then[0].Lease, func(to *coord.Local) ([]bool, error) { return to.Commit(context.WithoutCancel(ctx), all...) })
}

func (b *restorable) Get(ctx context.Context, key string) (coord.Entry, error) {
	return b.now().Get(ctx, key)
}

func (b *restorable) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	return b.now().Range(ctx, prefix)
}

func (b *restorable) RangeAll(ctx context.Context, prefixes ...string) ([][]coord.Entry, error) {
	return b.now().RangeAll(ctx, prefixes...)
}

func (b *restorable) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	return func(yield func([]coord.Event, error) bool) {
		watched := b.now()
		for events, err := range watched.Watch(ctx, prefix, after) {
			if b.now() != watched {
				<-ctx.Done()
				events, err = nil, ctx.Err()
			}
			if !yield(events, err) {
				return
			}
		}
	}
}

// followed has an engine run revision 5. The snapshots have revision 1, before and after the engine has its lease.
func followed(t *testing.T, isForced bool) (b *restorable, e *engine, before, after snapshot) {
	t.Helper()
	b = newRestorable()
	first, err := revision.Push(t.Context(), b, revision.Request{Bundle: files("text 1"), Force: isForced})
	if err != nil {
		t.Fatal(err)
	}
	before = b.snapshot()
	e = follow(t, b, first.Ref(), nil)
	wantSays(t, b, "a runs 1")
	after = b.snapshot()
	for number := int64(2); number <= 5; number++ {
		push(t, b, number-1, fmt.Sprint("text ", number))
	}
	wantSays(t, b, "a runs 5")
	e.since()
	return b, e, before, after
}

// wantLogged checks how often an engine has logged something.
func wantLogged(t *testing.T, e *engine, text string, want int) {
	t.Helper()
	synctest.Wait()
	if n := strings.Count(e.log.String(), text); n != want {
		t.Errorf("%q was logged %d times, want %d:\n%s", text, n, want, e.log.String())
	}
}

const (
	logLower    = "has a lower number than the one in use"
	logRestored = "has other entries than before"
	logAway     = "cannot be reached"
)

// noticed is how long an engine needs at most to notice that a store was restored, and to use what that has.
const noticed = 2 * coord.DefaultTTL

func TestAnEngineFollowsAStoreThatWasRestored(t *testing.T) {
	for what, hasLease := range map[string]bool{"with the lease of the engine": true, "without it": false} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, e, before, after := followed(t, false)
				if hasLease {
					b.restore(after)
				} else {
					b.restore(before)
				}
				time.Sleep(noticed)
				wantEvents(t, e, "ask and use 1: text 1")
				wantSays(t, b, "a runs 1")
				wantLogged(t, e, logLower, 1)
				if hasLease {
					wantLogged(t, e, logRestored, 1)
					wantLogged(t, e, logAway, 0)
				}
				r, err := revision.Push(t.Context(), b, revision.Request{Bundle: files("new"), Base: 1})
				if err != nil || r.Accepted != 1 {
					t.Errorf("pushed %+v, %v", r, err)
				}
				wantEvents(t, e, "check 2: new", "use 2: new")
				wantSays(t, b, "a runs 2")
				wantLogged(t, e, logLower, 1)
			})
		})
	}
}

// The store has as many changes after the restore as it has lost, or more: no revision that the engine reads is lower.
func TestAnEngineNoticesARestoreByItsOwnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, e, _, earlier := followed(t, false)
		_, lost, err := b.Range(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		b.restore(earlier)
		for at := coord.Revision(0); at <= lost; _, at, _ = b.Range(t.Context(), "") {
			commit(t, b, coord.Change{Key: "fleet/other"})
		}
		time.Sleep(noticed)
		wantEvents(t, e, "ask and use 1: text 1")
		wantSays(t, b, "a runs 1")
		wantLogged(t, e, logRestored, 1)
		wantLogged(t, e, logAway, 0)
	})
}

// Nothing that the engine says of itself has changed since the snapshot.
func TestAnEngineNoticesARestoreByALowerRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, e, _, _ := followed(t, false)
		same := b.snapshot()
		commit(t, b, coord.Change{Key: "config/engine/b", Value: []byte(`{"format": 1}`)})
		synctest.Wait() // it knows of that
		b.restore(same)
		time.Sleep(noticed)
		if engines := e.Engines(); len(engines) != 1 {
			t.Errorf("it knows of %+v", engines)
		}
		wantEvents(t, e)
		wantLogged(t, e, logRestored, 1)
		if r, err := revision.Push(t.Context(), b, revision.Request{Bundle: files("new"), Base: 5}); err != nil || r.Accepted != 1 {
			t.Errorf("pushed %+v, %v", r, err)
		}
		wantEvents(t, e, "check 6: new", "use 6: new")
		wantLogged(t, e, logLower, 0)
	})
}

// Another revision of the same number was pushed before the engine noticed the restore.
func TestAnEngineUsesTheNewRevisionOfANumberThatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, e, _, earlier := followed(t, false)
		b.restore(earlier)
		for number := int64(2); number <= 5; number++ {
			if _, err := revision.Push(t.Context(), b, revision.Request{
				Bundle: files(fmt.Sprint("new ", number)), Base: number - 1, IgnoreSilent: true, Timeout: time.Millisecond,
			}); err != nil {
				t.Fatal(err)
			}
		}
		wantEvents(t, e)
		time.Sleep(noticed)
		wantEvents(t, e, "ask and use 5: new 5")
		wantSays(t, b, "a runs 5")
		wantLogged(t, e, logLower, 0)
	})
}

func TestARestoredRevisionThatIsRefusedStaysRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, e, _, earlier := followed(t, false)
		e.fail(errors.New("too many targets would go"))
		b.restore(earlier)
		time.Sleep(time.Hour)
		wantEvents(t, e, "ask and use 1: text 1")
		wantSays(t, b, "a runs 5, not 1: too many targets would go")
		e.Again(false)
		wantEvents(t, e, "ask and use 1: text 1")
		wantLogged(t, e, logLower, 1)
		wantLogged(t, e, logRestored, 1)
		e.fail(nil)
		if _, err := revision.Push(t.Context(), b, revision.Request{Bundle: files("new"), Base: 1}); err != nil {
			t.Error(err)
		}
		wantEvents(t, e, "check 2: new", "use 2: new")
		wantSays(t, b, "a runs 2")
	})
}

// Who has forced the first revision did not know what engines run now.
func TestARestoredRevisionIsNotForced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, e, _, earlier := followed(t, true)
		running, _ := e.Status()
		b.restore(earlier)
		time.Sleep(noticed)
		wantEvents(t, e, "ask and use 1: text 1")
		e.end()
		e = follow(t, b, running.Running, nil) // it was away, and is not asked
		wantEvents(t, e, "ask and use 1: text 1")

		b, e, _, earlier = followed(t, false)
		e.fail(errors.New("too many targets would go"))
		b.restore(earlier)
		time.Sleep(noticed)
		e.since()
		e.fail(nil)
		if _, err := revision.Push(t.Context(), b, revision.Request{Bundle: files("new"), Base: 1, Force: true}); err != nil {
			t.Error(err)
		}
		wantEvents(t, e, "check 2: new", "use 2: new")
	})
}

// Its own entry is looked at, and not that of an engine whose name begins with its own.
func TestAnEngineKeepsItsLeaseBesideOneWithALongerName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		e := follow(t, b, push(t, b, 0, "first").Ref(), nil)
		before, err := b.Get(t.Context(), "config/engine/a")
		if err != nil || before.Created == 0 {
			t.Fatal(before, err)
		}
		for _, change := range []coord.Change{{Value: []byte("{}")}, {Value: []byte(`{"format": 1}`)}, {Delete: true}} {
			change.Key = "config/engine/ab"
			commit(t, b, change)
			time.Sleep(noticed)
		}
		if now, err := b.Get(t.Context(), "config/engine/a"); err != nil || now.Created != before.Created || now.Modified != before.Modified {
			t.Errorf("it has put another entry: %+v, %v; before: %+v", now, err, before)
		}
		wantLogged(t, e, "level=WARN", 0)
	})
}

// unanswered is a Backend that makes the first change of an engine's entry, and does not answer.
type unanswered struct {
	coord.Backend
	once sync.Once
}

func (u *unanswered) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	made, err := u.Backend.Commit(ctx, all...)
	if strings.HasPrefix(all[0].Then[0].Key, "config/engine/") {
		u.once.Do(func() { made, err = nil, context.DeadlineExceeded })
	}
	return made, err
}

// What the engine says of itself changes before it tries again to put it.
func TestAnEngineRecognizesAnEntryWhoseReplyWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		push(t, b, 0, "first")
		e := follow(t, &unanswered{Backend: b}, revision.Ref{}, nil)
		time.Sleep(time.Minute)
		wantEvents(t, e, "ask and use 1: first")
		wantSays(t, b, "a runs 1")
	})
}
