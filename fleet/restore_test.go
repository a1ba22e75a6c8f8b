package fleet_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// snapshot is the memories and records of acts that a store had.
type snapshot []coord.Entry

// isOfTargets reports whether a key is that of a memory or of a record of an act.
func isOfTargets(key string) bool {
	return strings.Count(key, "/") > 1 && (strings.HasPrefix(key, "memory/") || strings.HasPrefix(key, "act/"))
}

func save(t *testing.T, b coord.Backend) (s snapshot) {
	t.Helper()
	all, _, err := b.Range(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if isOfTargets(e.Key) {
			s = append(s, e)
		}
	}
	return s
}

// memory returns the memory of the only target.
func (s snapshot) memory() string {
	for _, e := range s {
		if strings.HasPrefix(e.Key, "memory/") {
			return string(e.Value)
		}
	}
	return ""
}

// restore replaces memories and records of acts by those of a snapshot.
func (s snapshot) restore(t *testing.T, b coord.Backend) {
	t.Helper()
	change := func(c coord.Change) {
		if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{c}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range save(t, b) {
		change(coord.Change{Key: e.Key, Delete: true})
	}
	for _, e := range s {
		change(coord.Change{Key: e.Key, Value: e.Value})
	}
}

// restarted starts an engine, lets it restart a target twice, and returns the store as it was after the first restart.
func restarted(t *testing.T, w *world, b coord.Backend, targets fleet.Targets) (*member, snapshot) {
	t.Helper()
	one := start(t, "one", b, targets)
	time.Sleep(time.Minute)
	w.infect(crippled, 0)
	time.Sleep(time.Minute)
	s := save(t, b)
	time.Sleep(time.Hour)
	w.infect(crippled, 0)
	time.Sleep(time.Minute)
	if n := len(w.restarts(crippled)); n != 2 {
		t.Fatalf("it was restarted %d times", n)
	}
	return one, s
}

// The store is restored from a snapshot without the leases of the engines. They rejoin, and resume from their own
// memories, which are newer. No verdict, instance or count changes.
func TestAnEngineGoesOnAfterTheStoreWasRestored(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one, s := restarted(t, w, b, w.with(blind{driver{world: w, target: crippled}, new(string)}))
		before, _ := one.engine.Target(crippled)
		one.forget()
		one.backend.isCut.Store(true)
		time.Sleep(2 * coord.DefaultTTL)
		s.restore(t, b)
		one.backend.isCut.Store(false)
		time.Sleep(time.Minute)
		after, _ := one.engine.Target(crippled)
		if after.Instance.ID != before.Instance.ID || after.Instance.Restarts != before.Instance.Restarts || after.State != probe.StateReady {
			t.Errorf("it goes on with %+v, %v; it had %+v", after.Instance, after.State, before.Instance)
		}
		if failed := *one.failures.Load(); len(failed) > 0 {
			t.Errorf("verdicts have changed: %s", strings.Join(failed, ", "))
		}
		if stored := save(t, b).memory(); !strings.Contains(stored, before.Instance.ID) {
			t.Errorf("it has stored %q", stored)
		}
	})
}

// rolledBack is a coord.Backend that goes back to a snapshot that has the leases of all engines, so that no lease
// expires.
type rolledBack struct {
	coord.Backend
	isBumped bool           // revisions are higher than before, and watches end; otherwise they are lower, and watches stay silent
	steps    coord.Revision // by how much they are lower
	back     chan struct{}  // closed when it goes back
}

// lower returns by how much revisions are lower now, and whether the store went back.
func (b *rolledBack) lower() (by coord.Revision, isBack bool) {
	select {
	case <-b.back:
	default:
		return 0, false
	}
	if b.isBumped {
		return 0, true
	}
	return b.steps, true
}

// goBack restores a snapshot.
func (b *rolledBack) goBack(t *testing.T, s snapshot) {
	close(b.back)
	synctest.Wait()
	s.restore(t, b.Backend)
}

func (b *rolledBack) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	all, at, err := b.Backend.Range(ctx, prefix)
	by, _ := b.lower()
	return all, at - by, err
}

func (b *rolledBack) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	by, wasBack := b.lower()
	return func(yield func([]coord.Event, error) bool) {
		watching, end := context.WithCancel(ctx)
		defer end()
		if !wasBack {
			go func() {
				select {
				case <-b.back:
					end()
				case <-watching.Done():
				}
			}()
		}
		for events, err := range b.Backend.Watch(watching, prefix, after+by) {
			if err != nil && ctx.Err() == nil && !b.isBumped {
				<-ctx.Done()
			} else if err != nil && ctx.Err() == nil {
				err = coord.ErrCompacted
			}
			for i := range events {
				events[i].Modified -= by
			}
			if !yield(events, err) || err != nil {
				return
			}
		}
	}
}

// As above, but the snapshot has the leases: no engine loses its own, and recently stored memories are gone. The engines
// store them again, so that the next owner resumes from them.
func TestWhatWasStoredIsStoredAgainAfterTheStoreWasRestoredWithItsLeases(t *testing.T) {
	tier.CI(t)
	for what, isBumped := range map[string]bool{"higher revisions": true, "lower revisions": false} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, b := newWorld(), &rolledBack{Backend: coordtest.NewLocal(), isBumped: isBumped, steps: 50, back: make(chan struct{})}
				one, s := restarted(t, w, b, w.with(blind{driver{world: w, target: crippled}, new(string)}))
				before, _ := one.engine.Target(crippled)
				one.forget()
				one.notices.tell(crippled, "trouble")
				time.Sleep(5 * time.Second)
				one.backend.isCut.Store(true)
				time.Sleep(coord.DefaultTTL / 2)
				b.goBack(t, s)
				one.backend.isCut.Store(false)
				lease, _ := one.co.Lease()
				time.Sleep(coord.DefaultTTL - time.Second)
				if now, _ := one.co.Lease(); !one.fleet.MayAct(crippled) || now == lease && !isBumped {
					t.Error("it has not joined again, and waits until the lease has ended that the snapshot has")
				}
				time.Sleep(time.Minute)
				if stored := save(t, b).memory(); !strings.Contains(stored, before.Instance.ID) {
					t.Errorf("the store has %q", stored)
				}
				if failed := *one.failures.Load(); len(failed) > 0 {
					t.Errorf("verdicts have changed: %s", strings.Join(failed, ", "))
				}
				if got := one.notices.knows(crippled); got != "trouble" {
					t.Errorf("receivers know %q", got)
				}
				two := start(t, "two", b, w.with(blind{driver{world: w, target: crippled}, new(string)}))
				time.Sleep(time.Minute)
				one.kill()
				time.Sleep(time.Minute)
				if after, _ := two.engine.Target(crippled); after.Instance.ID != before.Instance.ID || after.Instance.Restarts != before.Instance.Restarts {
					t.Errorf("the next owner goes on with %+v; it was %+v", after.Instance, before.Instance)
				}
				if n := len(w.restarts(crippled)); n != 2 {
					t.Errorf("it was restarted %d times", n)
				}
			})
		})
	}
}
