package coord_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

const maxAge = 10 * time.Minute

// loadNothing is a program that marks no shards as loaded.
func loadNothing(context.Context, *coord.Coordinator) {}

// memoriesOf waits until an engine owns a shard, and returns the shard's memories.
func memoriesOf(t *testing.T, co *coord.Coordinator, id shard.ID) coord.Memories {
	t.Helper()
	time.Sleep(time.Minute)
	owned, _ := co.Owned()
	if owned[id].Token == 0 {
		t.Fatalf("shard %v is not owned", id)
	}
	all, err := co.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return all[id]
}

func TestMemoriesAreRecentForMaxAgeAfterTheLastOwner(t *testing.T) {
	tier.Slow(t)
	for stopped, want := range map[time.Duration]bool{0: true, 8*time.Minute + 15*time.Second: true, 11 * time.Minute: false, 60 * time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			b := coordtest.NewLocal()
			config := coord.Config{Name: "a", Backend: b, MaxAge: maxAge}
			first, end := launch(t, config, loadNothing)
			if m := memoriesOf(t, first, 7); m.IsRecent || m.IsContinued {
				t.Errorf("the first owner: %+v", m)
			}
			end()
			_, end = run(t, config)
			time.Sleep(time.Hour) // the age counts from the owner's exit
			end()
			time.Sleep(stopped)
			for range 3 { // each of them loads nothing
				next, end := launch(t, config, loadNothing)
				if m := memoriesOf(t, next, 7); m.IsRecent != want || m.IsContinued {
					t.Errorf("after %v: %+v", stopped, m)
				}
				end()
				want = want && stopped == 0
			}
		})
	}
}

// severed is a Backend from which an engine was cut off, as when it was killed.
type severed struct {
	coord.Backend
	is atomic.Bool
}

func (b *severed) err() error {
	if b.is.Load() {
		return errors.New("cut off")
	}
	return nil
}

func (b *severed) KeepAlive(ctx context.Context, l coord.Lease) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.Backend.KeepAlive(ctx, l)
}

func (b *severed) Revoke(ctx context.Context, l coord.Lease) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.Backend.Revoke(ctx, l)
}

func (b *severed) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	if err := b.err(); err != nil {
		return 0, err
	}
	return b.Backend.Grant(ctx, ttl)
}

func TestAShardThatAnotherMemberHadIsContinued(t *testing.T) {
	for _, isKilled := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := coordtest.NewLocal()
			cut := &severed{Backend: b}
			_, end := run(t, coord.Config{Name: "a", Backend: cut, MaxAge: maxAge})
			time.Sleep(time.Minute)
			next, _ := launch(t, coord.Config{Name: "b", Backend: b, MaxAge: maxAge}, loadNothing)
			id := shard.ID(0)
			for assigned := shard.Assign([]string{"a", "b"}); assigned[id] == "b"; id++ {
			}
			time.Sleep(time.Minute)
			cut.is.Store(isKilled)
			end()
			if m := memoriesOf(t, next, id); !m.IsRecent || !m.IsContinued {
				t.Errorf("killed is %v: %+v", isKilled, m)
			}
		})
	}
}

// An owner that has loaded nothing, between the previous owner and this engine, changes nothing.
func TestMemoriesAreThoseOfTheLastOwnerThatHasLoadedThem(t *testing.T) {
	for _, isMember := range []bool{true, false} { // while the previous owner is alive
		synctest.Test(t, func(t *testing.T) {
			b := coordtest.NewLocal()
			config := func(name string) coord.Config { return coord.Config{Name: name, Backend: b, MaxAge: maxAge} }
			id := shard.ID(0)
			for first, second := shard.Assign([]string{"a", "b", "c"}), shard.Assign([]string{"b", "c"}); first[id] != "a" || second[id] != "b"; id++ {
			}
			var last *coord.Coordinator
			begin := func() { last, _ = launch(t, config("c"), loadNothing) }
			_, endA := run(t, config("a"))
			time.Sleep(time.Minute)
			if isMember {
				begin()
			}
			_, endB := launch(t, config("b"), loadNothing)
			time.Sleep(time.Minute)
			endA()
			time.Sleep(time.Minute)
			if !isMember {
				begin()
				time.Sleep(time.Minute)
			}
			endB()
			if m := memoriesOf(t, last, id); !m.IsRecent || m.IsContinued != isMember {
				t.Errorf("a member is %v: %+v", isMember, m)
			}
		})
	}
}

// No act begins for a shard before its memories are loaded, even after its token has changed.
func TestActsWaitForMemories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		a, _ := launch(t, coord.Config{Name: "a", Backend: b}, loadNothing)
		instance := 0
		act := func(want error) {
			t.Helper()
			time.Sleep(time.Minute)
			instance++
			err := a.Acts().Do(t.Context(), coord.Order{Target: "web", Instance: fmt.Sprint(instance)}, hold(0))
			if !errors.Is(err, want) || a.Acts().MayBegin("web") != (want == nil) {
				t.Errorf("%v, and it may act: %v; want %v", err, a.Acts().MayBegin("web"), want)
			}
		}
		mark := func() {
			t.Helper()
			owned, _ := a.Owned()
			id := shard.Of("web")
			if err := a.MarkLoaded(t.Context(), map[shard.ID]coord.Revision{id: owned[id].Token}); err != nil {
				t.Error(err)
			}
		}
		act(coord.ErrNotLoaded)
		mark()
		act(nil)
		lease, _ := a.Lease()
		if err := b.Revoke(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		act(coord.ErrNotLoaded)
		mark()
		act(nil)
	})
}

// When etcd itself was stopped, it restarts each lease with its full TTL: a member may then see the end of a lease that
// was not renewed during its membership.
func TestAnOwnerThatWasNotSeenAliveIsNotContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		l, err := b.Grant(t.Context(), coord.DefaultTTL)
		if err != nil {
			t.Fatal(err)
		}
		put := func(key, value string) coord.Transaction {
			return coord.Transaction{Then: []coord.Change{{Key: key, Value: []byte(value), Lease: l}}}
		}
		if _, err := b.Commit(t.Context(), put("fleet/m/dead", fmt.Sprintf(`{"lease":%d}`, l)), put("fleet/shard/0007", "dead/"+l.String())); err != nil {
			t.Fatal(err)
		}
		e, err := b.Get(t.Context(), "fleet/shard/0007")
		if err != nil {
			t.Fatal(err)
		}
		mark := coord.Change{Key: "memory/0007", Value: fmt.Append(nil, e.Created)}
		if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{mark}}); err != nil {
			t.Fatal(err)
		}
		a, _ := launch(t, coord.Config{Name: "a", Backend: b, MaxAge: maxAge}, loadNothing)
		if m := memoriesOf(t, a, 7); m.IsContinued || !m.IsRecent {
			t.Errorf("the owner before was not alive while this engine was a member: %+v", m)
		}
	})
}

// unread is a Backend whose members cannot be read while it is closed.
type unread struct {
	coord.Backend
	isClosed atomic.Bool
}

func (b *unread) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	if b.isClosed.Load() && prefix == "fleet/" {
		<-ctx.Done()
		return nil, 0, ctx.Err()
	}
	return b.Backend.Range(ctx, prefix)
}

// An engine that is not a member of the fleet, or has not read the members, has seen no owner alive.
func TestNoOwnerWasSeenAliveByAnEngineThatHasNotReadTheMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &unread{Backend: coordtest.NewLocal()}
		cut := &severed{Backend: b}
		config := coord.Config{Name: "a", Backend: cut, MaxAge: maxAge}
		_, end := run(t, config)
		time.Sleep(time.Minute)
		end()
		co, _ := launch(t, config, loadNothing)
		load := func(when string) {
			t.Helper()
			all, err := co.Load(t.Context(), 7)
			if err != nil || !all[7].IsRecent || all[7].IsContinued {
				t.Errorf("%s: %+v, %v", when, all[7], err)
			}
		}
		time.Sleep(time.Second)
		load("as a member")
		b.isClosed.Store(true)
		deleteMember(t, b, "a")
		for range 2 * coord.DefaultTTL / time.Second {
			time.Sleep(time.Second)
			load("as a member that has not read the members")
		}
		b.isClosed.Store(false)
		time.Sleep(2 * coord.DefaultTTL)
		load("as a member again")
		owned, _ := co.Owned()
		if err := co.MarkLoaded(t.Context(), map[shard.ID]coord.Revision{7: owned[7].Token}); err != nil {
			t.Fatal(err)
		}
		cut.is.Store(true)
		time.Sleep(2 * coord.DefaultTTL)
		load("without a lease")
	})
}

// All sessions of an engine share the lease of its marks. Without marks there is none.
func TestSessionsShareTheLeaseOfMarks(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		b := &refusing{Backend: coordtest.NewLocal()}
		b.refuse("fleet/m/")
		co, _ := run(t, coord.Config{Name: "a", Backend: b, MaxAge: maxAge})
		time.Sleep(maxAge)
		if n := b.grants.Load(); n != 0 {
			t.Errorf("%d leases of an engine that cannot join", n)
		}
		b.refuse("")
		for range 20 {
			time.Sleep(time.Minute)
			deleteMember(t, b, "a")
		}
		time.Sleep(time.Minute)
		if n := b.grants.Load(); n != 1 {
			t.Errorf("%d leases of an engine that has joined again and again", n)
		}
		if m := memoriesOf(t, co, 7); !m.IsRecent {
			t.Error("a shard is not marked")
		}
		for range 2 {
			if err := b.Revoke(t.Context(), coord.Lease(b.last.Load())); err != nil {
				t.Fatal(err)
			}
			time.Sleep(maxAge/10 + coord.DefaultTTL)
			if m := memoriesOf(t, co, 7); !m.IsRecent {
				t.Error("a shard is not marked again after the lease has ended")
			}
		}
	})
}

func TestMemoriesAreStoredInFewTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counted := &commits{Backend: coordtest.NewLocal()}
		a, _ := run(t, coord.Config{Name: "a", Backend: counted})
		time.Sleep(time.Second)
		owned, _ := a.Owned()
		const id, n = 7, 60
		var all []coord.Memory
		for i, target := range inShard(id, "shop/web-", n) {
			all = append(all, coord.Memory{Target: target, Token: owned[id].Token, Value: fmt.Append(nil, i)})
		}
		all = append(all, coord.Memory{Target: inShard(id, "large-", 1)[0], Token: owned[id].Token, Value: make([]byte, coord.MaxMemory+1)})
		before := counted.transactions.Load()
		for i, err := range a.Store(t.Context(), all...) {
			if (err != nil) != (i == n) {
				t.Errorf("memory %d: %v", i, err)
			}
		}
		if made := counted.transactions.Load() - before; made != (n+coord.MaxChanges-1)/coord.MaxChanges {
			t.Errorf("%d memories of a shard need %d transactions", n, made)
		}
		all[0].Value = nil
		if err := a.Store(t.Context(), all[0])[0]; err != nil {
			t.Fatal(err)
		}
		if loaded, err := a.Load(t.Context(), id, 8); err != nil || len(loaded[id].ByTarget) != n-1 || string(loaded[id].ByTarget[all[1].Target]) != "1" || len(loaded[8].ByTarget) > 0 {
			t.Errorf("loaded %v, %v", loaded, err)
		}
	})
}

// commits counts transactions.
type commits struct {
	coord.Backend
	transactions atomic.Int64
}

func (b *commits) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	b.transactions.Add(int64(len(all)))
	return b.Backend.Commit(ctx, all...)
}
