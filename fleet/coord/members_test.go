package coord_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// engine is a Coordinator that can be stopped.
type engine struct {
	*coord.Coordinator
	name string
	end  func()
}

// giveUp gives up the shards that other engines should get, and marks its own as loaded.
func giveUp(ctx context.Context, co *coord.Coordinator) {
	var marking sync.WaitGroup
	marking.Go(func() { coordtest.MarkLoaded(ctx, co) })
	defer marking.Wait()
	for ctx.Err() == nil {
		owned, changed := co.Owned()
		_ = co.Release(ctx, leaving(owned)...)
		select {
		case <-changed:
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// start starts an engine that gives up the shards that other engines should get.
func start(t *testing.T, name string, b coord.Backend) *engine {
	t.Helper()
	co, end := launch(t, coord.Config{Name: name, Backend: b}, giveUp)
	return &engine{co, name, end}
}

// startStubborn starts an engine that never gives up shards.
func startStubborn(t *testing.T, name string, b coord.Backend) *engine {
	t.Helper()
	co, end := run(t, coord.Config{Name: name, Backend: b})
	return &engine{co, name, end}
}

func leaving(owned coord.Owned) (all []shard.ID) {
	for id, o := range owned {
		if o.Leaving {
			all = append(all, id)
		}
	}
	return all
}

// settled waits until the engines own all shards, each as many as Assign assigns to it, and returns the owners.
func settled(t *testing.T, engines ...*engine) *[shard.Count]string {
	t.Helper()
	var names []string
	for _, e := range engines {
		names = append(names, e.name)
	}
	want := shard.Assign(names)
	until(t, fmt.Sprintf("%v own all shards", names), func() bool { return *ownersOf(t, engines...) == *want })
	return want
}

// ownersOf returns the owners of all shards. It fails the test if two engines own the same shard.
func ownersOf(t *testing.T, engines ...*engine) *[shard.Count]string {
	t.Helper()
	all := new([shard.Count]string)
	tokens := map[shard.ID]coord.Revision{}
	for _, e := range engines {
		owned, _ := e.Owned()
		for id, o := range owned {
			if o.Token != 0 && tokens[id] == o.Token {
				t.Fatalf("two engines own shard %v with token %d", id, o.Token)
			}
			if tokens[id] = o.Token; o.Token != 0 && !o.Leaving && e.Allowed() {
				all[id] = e.name
			}
		}
	}
	return all
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Hour); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after an hour still not: %s", what)
		}
	}
}

// orderIn returns an order for a target in one of the owned shards.
func orderIn(owned coord.Owned, instance string) coord.Order {
	for i := 0; ; i++ {
		target := fmt.Sprintf("shop/web-%d", i)
		if o := owned[shard.Of(target)]; o.Token != 0 && !o.Leaving {
			return coord.Order{Target: target, Instance: instance}
		}
	}
}

// awaitLoaded waits until an engine may act for a target.
func awaitLoaded(t *testing.T, e *engine, target string) {
	t.Helper()
	until(t, e.name+" has marked the shard of "+target+" as loaded", func() bool { return e.Acts().MayBegin(target) })
}

func TestEachShardHasOneOwner(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		a := start(t, "a", b)
		before := settled(t, a)
		second := start(t, "b", b)
		after := settled(t, a, second)
		third := start(t, "c", b)
		settled(t, a, second, third)
		if *before == *after {
			t.Error("an engine that joins gets no shards")
		}
		begin := time.Now()
		second.end() // it leaves immediately
		settled(t, a, third)
		t.Logf("others have taken over after %v", time.Since(begin))
		a.end()
		third.end()
		for _, prefix := range []string{"fleet/", "act/"} { // marks of shards remain
			if left, _, err := b.Range(t.Context(), prefix); err != nil || len(left) > 0 {
				t.Errorf("they have left, and there are %v, %v", left, err)
			}
		}
	})
}

// The other members get its shards, and all members get their shards back while all are drained.
func TestADrainedMemberHasNoShards(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		first, second := start(t, "a", b), start(t, "b", b)
		settled(t, first, second)
		first.Drain(true)
		settled(t, second)
		for _, e := range []*engine{first, second} {
			until(t, "all know who is drained", func() bool {
				return slices.Equal(e.Status().Members, []coord.Member{{Name: "a", Drained: true}, {Name: "b", Shards: shard.Count}})
			})
		}
		third := startStubborn(t, "c", b)
		third.Drain(true)
		settled(t, second)
		second.Drain(true)
		settled(t, first, second, third)
		first.Drain(false)
		second.end()
		third.end()
		settled(t, first)
	})
}

// Orders of operators are valid without a lease, and independent of an engine's own reason.
func TestAMemberIsDrainedByAnOperator(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		first, second := start(t, "a", b), start(t, "b", b)
		settled(t, first, second)
		drain := func(name string, isForced, isNew bool, want error) {
			t.Helper()
			got, err := coord.PutDrain(t.Context(), b, coord.Drain{Name: name, By: "root@ops", At: time.Unix(1e9, 0)}, isForced)
			if got != isNew || !errors.Is(err, want) {
				t.Errorf("drain %s: %v, %v, want %v, %v", name, got, err, isNew, want)
			}
		}
		drain("c", false, false, coord.ErrNotMember)
		drain("a", false, true, nil)
		drain("a", false, false, nil)
		settled(t, second)
		drain("b", false, false, coord.ErrLastMember)
		first.Drain(true)
		first.Drain(false)
		settled(t, second)
		o, err := coord.ReadOverview(t.Context(), b)
		if err != nil || len(o.Drains) != 1 || o.Drains[0].Name != "a" || o.Drains[0].By != "root@ops" || o.Drains[0].At.Unix() != 1e9 ||
			!slices.Equal(o.Members, []coord.Member{{Name: "a", Drained: true}, {Name: "b", Shards: shard.Count}}) {
			t.Errorf("the store shows %+v, %v", o, err)
		}

		first.end()
		again := start(t, "a", b)
		until(t, "it is a member again, and drained", func() bool {
			isEligible, _, _ := again.Eligible()
			return again.Status().IsMember && !isEligible
		})
		settled(t, second)
		drain("b", true, true, nil)
		settled(t, again, second)
		for _, want := range []bool{true, false} {
			if was, err := coord.DeleteDrain(t.Context(), b, "b"); was != want || err != nil {
				t.Errorf("the drain of b has ended: %v, %v, want %v", was, err, want)
			}
		}
		settled(t, second)
		again.Drain(true)
		if _, err := coord.DeleteDrain(t.Context(), b, "a"); err != nil {
			t.Error(err)
		}
		until(t, "its own reason holds", func() bool { return len(again.Status().Drains) == 0 })
		settled(t, second)
		again.Drain(false)
		settled(t, again, second)
	})
}

func TestAnActIsDoneOnceForAnInstance(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		a := start(t, "a", b)
		settled(t, a)
		owned, _ := a.Owned()
		calls := 0
		do := func(context.Context) error { calls++; return nil }
		act := func(e *engine, o coord.Order, want error, wantCalls int) {
			t.Helper()
			if err := e.Acts().Do(t.Context(), o, do); !errors.Is(err, want) || calls != wantCalls {
				t.Errorf("%v: %v after %d calls, want %v after %d", o, err, calls, want, wantCalls)
			}
		}
		first := orderIn(owned, "1")
		awaitLoaded(t, a, first.Target)
		at := func(name string) string { return inShard(shard.Of(first.Target), name, 1)[0] }
		second := coord.Order{Target: first.Target, Instance: "2"}
		act(a, first, nil, 1)
		act(a, first, coord.ErrDone, 1)
		failed := errors.New("the driver does not answer")
		if err := a.Acts().Do(t.Context(), second, func(context.Context) error { return failed }); !errors.Is(err, failed) {
			t.Errorf("got %v", err)
		}
		act(a, second, nil, 2) // it is repeated
		act(a, second, coord.ErrDone, 2)
		act(a, coord.Order{Target: at("notify"), Instance: "2"}, nil, 3)
		if err := a.Acts().Do(t.Context(), coord.Order{Target: first.Target, Instance: "3"}, func(ctx context.Context) error {
			return a.Acts().Do(ctx, coord.Order{Target: first.Target, Instance: "4"}, do)
		}); !errors.Is(err, coord.ErrBusy) {
			t.Errorf("two acts for a target at once: %v", err)
		}
		begun := func(name string, isDone bool, err error) coord.Order {
			return coord.Order{Target: at(name), Instance: "1", IsDone: func(ctx context.Context) (bool, error) {
				return isDone, errors.Join(err, ctx.Err())
			}}
		}
		for _, name := range []string{"move", "copy", "move"} { // the second time its owner knows the result
			if err := a.Acts().Do(t.Context(), begun(name, true, nil), func(context.Context) error { return failed }); !errors.Is(err, failed) {
				t.Errorf("got %v", err)
			}
		}
		a.end()
		act(a, coord.Order{Target: first.Target, Instance: "5"}, coord.ErrNotOwner, 3)
		next := start(t, "b", b)
		settled(t, next)
		awaitLoaded(t, next, second.Target)
		act(next, second, nil, 4) // the latest record is that of instance 3
		act(next, coord.Order{Target: at("notify"), Instance: "2"}, coord.ErrDone, 4)

		act(next, begun("move", true, failed), failed, 4)
		act(next, begun("move", true, nil), coord.ErrDone, 4)
		act(next, begun("move", false, nil), coord.ErrDone, 4) // as is recorded then
		act(next, begun("copy", false, nil), nil, 5)
	})
}

func TestAShardIsGivenUpAfterItsActsAndWithItsMemories(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		a := startStubborn(t, "a", b)
		settled(t, a)
		owned, _ := a.Owned()
		mine := shard.Assign([]string{"a", "b"})
		o := orderIn(owned, "1")
		for i := 0; mine[shard.Of(o.Target)] != "b"; i++ { // a target that moves
			o.Target = fmt.Sprintf("worker-%d", i)
		}
		id := shard.Of(o.Target)
		awaitLoaded(t, a, o.Target)
		if err := a.Store(t.Context(), coord.Memory{Target: o.Target, Token: owned[id].Token, Value: []byte("memories")})[0]; err != nil {
			t.Fatal(err)
		}
		acting, finish, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- a.Acts().Do(t.Context(), o, func(context.Context) error { close(acting); <-finish; return nil })
		}()
		<-acting
		other := start(t, "b", b)
		until(t, "a has to give up what is b's", func() bool {
			owned, _ := a.Owned()
			return len(leaving(owned)) > 0 && owned[id].Leaving
		})
		now, _ := a.Owned()
		if err := a.Acts().Do(t.Context(), coord.Order{Target: o.Target, Instance: "1"}, nil); !errors.Is(err, coord.ErrNotOwner) {
			t.Errorf("an act begins in a shard that is leaving: %v", err)
		}
		gone := slices.DeleteFunc(leaving(now), func(other shard.ID) bool { return other == id })[0] // no act for it is under way
		isOwn := func(id shard.ID) bool {
			e, err := b.Get(t.Context(), "fleet/shard/"+id.String())
			if err != nil {
				t.Fatal(err)
			}
			return e.Created == now[id].Token
		}
		if err := a.Release(t.Context(), id, gone); err != nil || !isOwn(id) || isOwn(gone) {
			t.Errorf("of two shards, one of them with an act, are kept: %v, %v, %v", isOwn(id), isOwn(gone), err)
		}
		if theirs, _ := other.Owned(); theirs[id].Token != 0 {
			t.Error("another engine owns a shard while an act is done for it")
		}
		if err := a.Store(t.Context(), coord.Memory{Target: o.Target, Token: now[id].Token, Value: []byte("last memories")})[0]; err != nil {
			t.Errorf("the last memories: %v", err)
		}
		close(finish)
		if err := <-ended; err != nil {
			t.Errorf("an act that had begun: %v", err)
		}
		if err := a.Release(t.Context(), leaving(now)...); err != nil {
			t.Fatal(err)
		}
		settled(t, a, other)
		if memories, err := other.Load(t.Context(), id); err != nil || string(memories[id].ByTarget[o.Target]) != "last memories" {
			t.Errorf("the next owner has %v, %v", memories, err)
		}
		if err := a.Store(t.Context(), coord.Memory{Target: o.Target, Token: now[id].Token, Value: []byte("stale")})[0]; !errors.Is(err, coord.ErrNotOwner) {
			t.Errorf("the former owner writes: %v", err)
		}
		awaitLoaded(t, other, o.Target)
		if err := other.Acts().Do(t.Context(), o, nil); !errors.Is(err, coord.ErrDone) {
			t.Errorf("the next owner does again what was done: %v", err)
		}
	})
}

// holding returns holdings with targets in shard 7 that have these name hashes.
func holding(names ...uint32) (coord.Holdings, map[shard.ID][]uint32) {
	h := coord.Holding{Targets: uint16(len(names))}
	for _, name := range names {
		h.Names += name
	}
	return coord.Holdings{7: h}, map[shard.ID][]uint32{7: names}
}

// A shard goes to a member that has all of its targets. If no member has, it goes to the members with the most common
// configuration.
func TestAShardGoesToAMemberThatHasItsTargets(t *testing.T) {
	for name, c := range map[string]struct {
		a, b, c []uint32
		owners  string // engines that may own the shard
	}{
		"one has more":                          {[]uint32{1, 2}, []uint32{1, 2}, []uint32{1, 2, 3}, "c"},
		"one lacks some":                        {[]uint32{1, 2, 3}, []uint32{1, 2}, []uint32{1, 2, 3}, "ac"},
		"one has others, and more":              {[]uint32{1, 2}, []uint32{1, 2}, []uint32{4, 5, 60}, "ab"},
		"one has others, as many":               {[]uint32{1, 2}, []uint32{1, 99}, []uint32{1, 2}, "ac"},
		"one has others, and fewer":             {[]uint32{1, 2, 3}, []uint32{1, 2, 3}, []uint32{9}, "ab"},
		"each has others: more, then by hash":   {[]uint32{1, 2}, []uint32{3}, []uint32{4, 5}, "c"},
		"one has all, and the others no target": {nil, nil, []uint32{1}, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			tier.Slow(t)
			synctest.Test(t, func(t *testing.T) {
				b := coordtest.NewLocal()
				var all []*engine
				for i, names := range [][]uint32{c.a, c.b, c.c} {
					e := start(t, string(rune('a'+i)), b)
					e.SetHoldings(holding(names...))
					all = append(all, e)
				}
				time.Sleep(2 * time.Minute)
				for _, e := range all {
					if owned, _ := e.Owned(); owned[7].Token != 0 && !strings.Contains(c.owners, e.name) {
						t.Errorf("%s owns the shard", e.name)
					}
				}
				if owner := all[0].OwnerOfShard(7); owner == "" {
					t.Error("no engine owns the shard")
				}
			})
		})
	}
}

// The key of a member claims that it has more targets of each shard than others, but the member claims no shards. After
// a minute that does not count any more, and the others own what they can.
func TestAMemberThatLiesAboutItsTargetsTakesNoOthers(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		one, two := start(t, "one", b), start(t, "two", b)
		all, names := coord.Holdings{}, map[shard.ID][]uint32{}
		lie := []byte{1}
		for id := range shard.ID(shard.Count) {
			all[id], names[id] = coord.Holding{Targets: 1, Names: 5}, []uint32{5}
			lie = append(lie, byte(id>>8), byte(id), 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0)
		}
		one.SetHoldings(all, names)
		two.SetHoldings(all, names)
		time.Sleep(time.Minute)
		value := fmt.Sprintf(`{"lease":77,"holds":%q}`, base64.RawStdEncoding.EncodeToString(lie))
		if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: "fleet/m/liar", Value: []byte(value)}}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		count := func() int {
			a, _ := one.Owned()
			b, _ := two.Owned()
			return len(a) + len(b)
		}
		if n := count(); n < shard.Count*6/10 {
			t.Errorf("the other engines own %d of %d shards", n, shard.Count)
		}
	})
}
