// Package coordtest tests implementations of coord.Backend: by themselves, with Coordinators that share
// one, and with a configuration that is pushed to engines.
package coordtest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
)

// Config says how an implementation is tested.
type Config struct {
	New func(t *testing.T) coord.Backend // returns one without entries; called once in each test
	TTL time.Duration                    // of the leases of tests: longer than the backend and its machine may stall; default: coord.MinTTL

	// ShortTTL is that of leases whose end is waited for. Default: TTL.
	ShortTTL time.Duration

	// Run runs a test, as a bubble of testing/synctest does. Default: calls it.
	Run func(t *testing.T, test func(t *testing.T))
}

// patience is how long a test waits for what has to come.
const patience = 5 * time.Minute

// Run tests an implementation.
func Run(t *testing.T, c Config) {
	if c.TTL == 0 {
		c.TTL = coord.MinTTL
	}
	if c.ShortTTL == 0 {
		c.ShortTTL = c.TTL
	}
	if c.Run == nil {
		c.Run = func(t *testing.T, test func(t *testing.T)) { test(t) }
	}
	for name, test := range map[string]func(*testing.T, Config){
		"TransactionsNeedTheirConditions":               testTransactions,
		"ALeaseThatEndsDeletesItsEntries":               testLeases,
		"AWatchMissesNothing":                           testWatch,
		"EachShardHasOneOwner":                          testOwners,
		"ADrainedMemberHasNoShards":                     testDrain,
		"AMemberIsDrainedByAnOperator":                  testDrainByOperator,
		"AnEngineThatIsCutOffStopsBeforeOthersBegin":    testCutOff,
		"AnActIsDoneOnceForAnInstance":                  testActs,
		"AShardIsGivenUpAfterItsActsAndWithItsMemories": testRelease,
		"AnOwnerWhoseLeaseHasEndedChangesNothing":       testStale,
		"TwoEnginesOfTheSameNameAreNotMembersTogether":  testNames,
		"EachEngineUsesARevisionOrRefusesIt":            testRevisions,
		"OneEngineTriesARevision":                       testTrials,
		"ALargeRevisionIsLoadedAsItWasPushed":           testLargeRevisions,
		"OfPushesAtOnceOneIsMade":                       testPushesAtOnce,
		"APushIsMadeAsAWholeOrNotAtAll":                 testTornPushes,
	} {
		t.Run(name, func(t *testing.T) { c.Run(t, func(t *testing.T) { test(t, c) }) })
	}
}

// commit makes transactions, and returns which were made.
func commit(t *testing.T, b coord.Backend, all ...coord.Transaction) string {
	t.Helper()
	made, err := b.Commit(t.Context(), all...)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(made)
}

// put is a transaction that puts an entry which was created by a revision: 0 for none.
func put(key, value string, created coord.Revision, l coord.Lease) coord.Transaction {
	return coord.Transaction{If: []coord.Condition{{Key: key, Created: created}}, Then: []coord.Change{{Key: key, Value: []byte(value), Lease: l}}}
}

// entries returns the entries of a prefix as a text, and the first of them.
func entries(t *testing.T, b coord.Backend, prefix string) (text string, first coord.Entry, at coord.Revision) {
	t.Helper()
	all, at, err := b.Range(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, e := range all {
		texts = append(texts, e.Key+"="+string(e.Value))
	}
	if len(all) > 0 {
		first = all[0]
	}
	return strings.Join(texts, " "), first, at
}

func testTransactions(t *testing.T, c Config) {
	b := c.New(t)
	if made := commit(t, b, put("a/1", "x", 0, 0), put("a/2", "y", 0, 0), put("b/1", "z", 7, 0)); made != "[true true false]" {
		t.Errorf("made: %s", made)
	}
	text, first, before := entries(t, b, "a/")
	if text != "a/1=x a/2=y" || first.Created <= 0 || before < first.Created {
		t.Errorf("there are %s at %d, the first since %d", text, before, first.Created)
	}
	if made := commit(t, b, put("a/1", "new", 0, 0)); made != "[false]" {
		t.Errorf("made: %s", made)
	}
	if made := commit(t, b, put("a/1", "new", first.Created, 0)); made != "[true]" {
		t.Errorf("made: %s", made)
	}
	text, again, at := entries(t, b, "a/1")
	if text != "a/1=new" || again.Created != first.Created || at <= before {
		t.Errorf("there are %s at %d, the first since %d", text, at, again.Created)
	}
	if first.Modified != first.Created || again.Modified != at {
		t.Errorf("it was modified by %d, and again by %d of %d", first.Modified, again.Modified, at)
	}
	modify := func(since coord.Revision) coord.Transaction {
		return coord.Transaction{If: []coord.Condition{{Key: "a/1", Modified: since}}, Then: []coord.Change{{Key: "a/1", Value: []byte("new")}}}
	}
	if made := commit(t, b, modify(first.Modified)) + commit(t, b, modify(again.Modified)) + commit(t, b, modify(again.Modified)); made != "[false][true][false]" {
		t.Errorf("made on condition of the latest change: %s", made)
	}
	deleted := coord.Transaction{If: []coord.Condition{{Key: "a/1", Created: first.Created}}, Then: []coord.Change{{Key: "a/1", Delete: true}}}
	if made := commit(t, b, deleted); made != "[true]" {
		t.Errorf("made: %s", made)
	}
	commit(t, b, put("a/1", "other", 0, 0))
	if _, other, _ := entries(t, b, "a/1"); other.Created <= first.Created {
		t.Errorf("it was created by %d, and again by %d", first.Created, other.Created)
	}
	if made := commit(t, b, deleted, put("c", "", first.Created, 0)); made != "[false false]" {
		t.Errorf("made with an old token: %s", made)
	}
	if e, err := b.Get(t.Context(), "a/1"); err != nil || string(e.Value) != "other" || e.Key != "a/1" || e.Created <= first.Created {
		t.Errorf("got %+v, %v", e, err)
	}
	all, err := b.RangeAll(t.Context(), "a/1", "c", "a/")
	if err != nil || len(all) != 3 || len(all[0]) != 1 || string(all[0][0].Value) != "other" || len(all[1]) > 0 || len(all[2]) != 2 || all[2][1].Key != "a/2" {
		t.Errorf("several prefixes: %v, %v", all, err)
	}
	if e, err := b.Get(t.Context(), "a/"); err != nil || e.Created != 0 || e.Value != nil {
		t.Errorf("got %+v, %v of no key", e, err)
	}
	var most []coord.Transaction
	for i := range coord.MaxTransactions {
		most = append(most, put(fmt.Sprintf("many/%03d", i), "", 0, 0))
		for n := range coord.MaxChanges - 1 {
			most[i].Then = append(most[i].Then, coord.Change{Key: fmt.Sprintf("many/%03d/%d", i, n)})
		}
	}
	commit(t, b, most...)
	if all, _, err := b.Range(t.Context(), "many/"); err != nil || len(all) != coord.MaxTransactions*coord.MaxChanges {
		t.Errorf("%d entries, %v", len(all), err)
	}
	if _, err := b.Commit(t.Context(), append(most, put("many/more", "", 0, 0))...); err == nil {
		t.Error("too many transactions are made")
	}
	most[0].Then = append(most[0].Then, coord.Change{Key: "many/more"})
	if _, err := b.Commit(t.Context(), most...); err == nil {
		t.Error("a transaction makes too many changes")
	}
}

func testLeases(t *testing.T, c Config) {
	b := c.New(t)
	for ttl := c.ShortTTL; !endLease(t, b, ttl); ttl *= 2 {
		if ttl > time.Minute {
			t.Fatalf("a lease of %v is not kept alive in time", ttl)
		}
	}
}

// endLease keeps one lease alive while another ends. It returns false if nothing can be said, since the machine has
// stalled for longer than leases last.
func endLease(t *testing.T, b coord.Backend, ttl time.Duration) bool {
	begin := time.Now()
	var leases [2]coord.Lease
	for i := range leases {
		l, err := b.Grant(t.Context(), ttl)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.Revoke(t.Context(), l) }()
		leases[i] = l
	}
	kept, ending := leases[0], leases[1]
	made, err := b.Commit(t.Context(), put("kept", "1", 0, kept), put("ending/1", "1", 0, ending), put("ending/2", "2", 0, ending))
	_, _, at := entries(t, b, "")
	if time.Since(begin) > ttl {
		return false
	}
	if err != nil || slices.Contains(made, false) {
		t.Fatalf("made: %v, %v", made, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var last time.Time
	var keeping sync.WaitGroup
	keeping.Go(func() { last = keepAlive(ctx, t, b, kept, begin, ttl) })
	var deleted []string
	for events, err := range b.Watch(ctx, "ending/", at) {
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Deleted {
				deleted = append(deleted, e.Key)
			}
		}
		if len(deleted) == 2 {
			break
		}
	}
	if took := time.Since(begin); took < ttl-time.Second/2 {
		t.Errorf("the lease ended after %v, not after %v", took, ttl)
	}
	if err := b.KeepAlive(t.Context(), ending); !errors.Is(err, coord.ErrLeaseEnded) {
		t.Errorf("a lease that has ended is kept alive: %v", err)
	}
	if _, err := b.Commit(t.Context(), put("late", "", 0, ending)); err == nil {
		t.Error("an entry has a lease that has ended")
	}
	stop()
	keeping.Wait()
	text, _, _ := entries(t, b, "")
	if time.Since(last) > ttl {
		return false
	}
	if text != "kept=1" {
		t.Errorf("there are %s", text)
	}
	if err := b.Revoke(t.Context(), kept); err != nil {
		t.Error(err)
	}
	if text, _, _ := entries(t, b, ""); text != "" {
		t.Errorf("there are %s", text)
	}
	return true
}

// keepAlive keeps a lease alive that was granted after a time, until ctx ends or the machine has stalled for longer
// than the lease lasts. It returns when the latest request began that has kept it alive, or else that time.
func keepAlive(ctx context.Context, t *testing.T, b coord.Backend, l coord.Lease, granted time.Time, ttl time.Duration) (last time.Time) {
	for last = granted; ctx.Err() == nil; {
		sent := time.Now()
		err := b.KeepAlive(ctx, l)
		if ctx.Err() != nil || time.Since(last) > ttl {
			break
		}
		if err != nil && !errors.Is(err, coord.ErrUnreachable) {
			t.Errorf("a lease that is kept alive: %v", err)
		}
		if err == nil {
			last = sent
		}
		select {
		case <-time.After(ttl / 4):
		case <-ctx.Done():
		}
	}
	return last
}

func testWatch(t *testing.T, c Config) {
	b := c.New(t)
	_, _, at := entries(t, b, "")
	var want []string
	change := func(i int) {
		key, other := fmt.Sprintf("w/%d", i%3), fmt.Sprintf("other/%d", i)
		tx := coord.Transaction{Then: []coord.Change{{Key: key, Value: fmt.Append(nil, i)}}}
		if i%5 == 4 {
			tx = coord.Transaction{Then: []coord.Change{{Key: key, Delete: true}}}
		}
		commit(t, b, tx, put(other, "", 0, 0))
		want = append(want, fmt.Sprintf("%s=%v", key, map[bool]any{true: "deleted", false: i}[i%5 == 4]))
	}
	for i := range 20 {
		change(i)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var got []string
	latest := at
	for events, err := range b.Watch(ctx, "w/", at) {
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Modified <= latest {
				t.Errorf("%s was modified by %d, the change before by %d", e.Key, e.Modified, latest)
			}
			latest = e.Modified
			value := string(e.Value)
			if e.Deleted {
				value = "deleted"
			}
			got = append(got, e.Key+"="+value)
		}
		if len(got) >= 40 {
			break
		}
		for i := len(want); i < 40; i++ {
			change(i)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("it has seen  %v\nand not only %v", got, want)
	}
}

// engine is a Coordinator with a program that gives up shards at once.
type engine struct {
	*coord.Coordinator
	name string
	end  func() // ends the engine, and waits for that
}

// start starts an engine.
func start(t *testing.T, c Config, name string, b coord.Backend) *engine {
	t.Helper()
	e := launch(t, c, name, b)
	ctx, stop := context.WithCancel(t.Context())
	var releasing sync.WaitGroup
	releasing.Go(func() {
		for ctx.Err() == nil {
			owned, changed := e.Owned()
			if leaving := leaving(owned); len(leaving) > 0 {
				_ = e.Release(ctx, leaving...) // it is called again
				select {
				case <-time.After(50 * time.Millisecond):
				case <-ctx.Done():
				}
				continue
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	})
	end := e.end
	e.end = func() { stop(); releasing.Wait(); end() }
	t.Cleanup(e.end)
	return e
}

// MarkLoaded marks the shards of a Coordinator as loaded once it owns them, until ctx is done: a program does that
// which has loaded their memories.
func MarkLoaded(ctx context.Context, co *coord.Coordinator) {
	marked := map[shard.ID]coord.Revision{}
	for {
		owned, changed := co.Owned()
		tokens := map[shard.ID]coord.Revision{}
		for id, o := range owned {
			if o.Token != 0 && o.Token != marked[id] {
				tokens[id] = o.Token
			}
		}
		var again <-chan time.Time
		if err := co.MarkLoaded(ctx, tokens); err != nil {
			again = time.After(50 * time.Millisecond)
		} else {
			maps.Copy(marked, tokens)
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// launch starts an engine that gives up no shards.
func launch(t *testing.T, c Config, name string, b coord.Backend) *engine {
	t.Helper()
	co, err := coord.New(coord.Config{Name: name, Backend: b, TTL: c.TTL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { co.Run(ctx) })
	running.Go(func() { MarkLoaded(ctx, co) })
	e := &engine{co, name, func() { stop(); running.Wait() }}
	t.Cleanup(e.end)
	return e
}

func leaving(owned coord.Owned) (all []shard.ID) {
	for id, o := range owned {
		if o.Leaving {
			all = append(all, id)
		}
	}
	return all
}

// settled waits until engines own all shards, each as many as Assign says, and returns who owns which.
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

// ownersOf returns the owners of all shards, of which no two may have the same.
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
	for end := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

// testDrain drains members: the others get their shards, and all get them again while all are drained.
func testDrain(t *testing.T, c Config) {
	b := c.New(t)
	first, second := start(t, c, "a", b), start(t, c, "b", b)
	settled(t, first, second)
	first.Drain(true)
	settled(t, second)
	for _, e := range []*engine{first, second} {
		until(t, "all know who is drained", func() bool {
			return slices.Equal(e.Status().Members, []coord.Member{{Name: "a", Drained: true}, {Name: "b", Shards: shard.Count}})
		})
	}
	third := launch(t, c, "c", b)
	third.Drain(true)
	settled(t, second)
	second.Drain(true)
	settled(t, first, second, third)
	first.Drain(false)
	second.end()
	third.end()
	settled(t, first)
}

// testDrainByOperator drains members by orders, which hold without a lease, and beside an engine's own reason.
func testDrainByOperator(t *testing.T, c Config) {
	b := c.New(t)
	first, second := start(t, c, "a", b), start(t, c, "b", b)
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
	again := start(t, c, "a", b)
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
}

func testOwners(t *testing.T, c Config) {
	b := c.New(t)
	a := start(t, c, "a", b)
	before := settled(t, a)
	second := start(t, c, "b", b)
	after := settled(t, a, second)
	third := start(t, c, "c", b)
	settled(t, a, second, third)
	if *before == *after {
		t.Error("an engine that joins gets no shards")
	}
	begin := time.Now()
	second.end() // it leaves at once
	settled(t, a, third)
	t.Logf("others have taken over after %v", time.Since(begin))
	a.end()
	third.end()
	for _, prefix := range []string{"fleet/", "act/"} { // marks of shards are left
		if text, _, _ := entries(t, b, prefix); text != "" {
			t.Errorf("they have left, and there are %s", text)
		}
	}
}

// cutOff is a Backend that can be cut off from one engine.
type cutOff struct {
	coord.Backend
	isCut       atomic.Bool // all of it
	isForgetful atomic.Bool // only leases are not kept alive
}

var errCut = errors.New("cut off, as a test wants it")

func (b *cutOff) KeepAlive(ctx context.Context, l coord.Lease) error {
	if b.isCut.Load() || b.isForgetful.Load() {
		return errCut
	}
	return b.Backend.KeepAlive(ctx, l)
}

func (b *cutOff) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	if b.isCut.Load() {
		return 0, errCut
	}
	return b.Backend.Grant(ctx, ttl)
}

func (b *cutOff) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if b.isCut.Load() {
		return nil, errCut
	}
	return b.Backend.Commit(ctx, all...)
}

func (b *cutOff) Get(ctx context.Context, key string) (coord.Entry, error) {
	if b.isCut.Load() {
		return coord.Entry{}, errCut
	}
	return b.Backend.Get(ctx, key)
}

func (b *cutOff) RangeAll(ctx context.Context, prefixes ...string) ([][]coord.Entry, error) {
	if b.isCut.Load() {
		return nil, errCut
	}
	return b.Backend.RangeAll(ctx, prefixes...)
}

func (b *cutOff) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	if b.isCut.Load() {
		return nil, 0, errCut
	}
	return b.Backend.Range(ctx, prefix)
}

// Watch is silent while the engine is cut off, and tells of nothing that was in that time.
func (b *cutOff) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	return func(yield func([]coord.Event, error) bool) {
		for events, err := range b.Backend.Watch(ctx, prefix, after) {
			if b.isCut.Load() {
				err = errCut
			}
			if !yield(events, err) || err != nil {
				return
			}
		}
	}
}

func testCutOff(t *testing.T, c Config) {
	c.TTL = c.ShortTTL
	b := c.New(t)
	cut := &cutOff{Backend: b}
	a, other := start(t, c, "a", cut), start(t, c, "b", b)
	settled(t, a, other)
	before, _ := a.Owned()
	cut.isCut.Store(true)
	begin := time.Now()
	until(t, "b owns all shards", func() bool {
		now := ownersOf(t, a, other)
		for id := range before {
			if now[id] == "b" && a.Allowed() {
				t.Fatalf("shard %v has a new owner, and the former one may act", id)
			}
		}
		return !slices.ContainsFunc(now[:], func(owner string) bool { return owner != "b" })
	})
	t.Logf("taken over after %v", time.Since(begin))
	if owned, _ := a.Owned(); len(owned) != len(before) || a.Allowed() {
		t.Errorf("it probes %d of its %d shards, and may act: %v", len(owned), len(before), a.Allowed())
	}
	called := false
	o := orderIn(before, "1")
	if err := a.Acts().Do(t.Context(), o, func(context.Context) error { called = true; return nil }); err == nil || called {
		t.Errorf("an engine that is cut off acts: %v", err)
	}
	cut.isCut.Store(false)
	settled(t, a, other)
}

// orderIn returns an order about a target of one of the shards that are owned.
func orderIn(owned coord.Owned, instance string) coord.Order {
	for i := 0; ; i++ {
		target := fmt.Sprintf("shop/web-%d", i)
		if o := owned[shard.Of(target)]; o.Token != 0 && !o.Leaving {
			return coord.Order{Name: "restart", Target: target, Instance: instance}
		}
	}
}

// awaitLoaded waits until an engine may act for a target.
func awaitLoaded(t *testing.T, e *engine, target string) {
	t.Helper()
	until(t, e.name+" has marked the shard of "+target+" as loaded", func() bool { return e.Acts().MayBegin(target) })
}

func testActs(t *testing.T, c Config) {
	b := c.New(t)
	a := start(t, c, "a", b)
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
	second := coord.Order{Name: first.Name, Target: first.Target, Instance: "2"}
	act(a, first, nil, 1)
	act(a, first, coord.ErrDone, 1)
	failed := errors.New("the driver does not answer")
	if err := a.Acts().Do(t.Context(), second, func(context.Context) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	act(a, second, nil, 2) // it is done again
	act(a, second, coord.ErrDone, 2)
	act(a, coord.Order{Name: "notify", Target: first.Target, Instance: "2"}, nil, 3)
	if err := a.Acts().Do(t.Context(), coord.Order{Name: "restart", Target: first.Target, Instance: "3"}, func(ctx context.Context) error {
		return a.Acts().Do(ctx, coord.Order{Name: "restart", Target: first.Target, Instance: "4"}, do)
	}); !errors.Is(err, coord.ErrBusy) {
		t.Errorf("two acts for a target at once: %v", err)
	}
	begun := func(name string, isDone bool, err error) coord.Order {
		return coord.Order{Name: name, Target: first.Target, Instance: "1", IsDone: func(ctx context.Context) (bool, error) {
			return isDone, errors.Join(err, ctx.Err())
		}}
	}
	for _, name := range []string{"move", "copy", "move"} { // the second time its owner knows how it has ended
		if err := a.Acts().Do(t.Context(), begun(name, true, nil), func(context.Context) error { return failed }); !errors.Is(err, failed) {
			t.Errorf("got %v", err)
		}
	}
	a.end()
	act(a, coord.Order{Name: "restart", Target: first.Target, Instance: "5"}, coord.ErrNotOwner, 3)
	next := start(t, c, "b", b)
	settled(t, next)
	awaitLoaded(t, next, second.Target)
	act(next, second, nil, 4) // the latest record is that of instance 3
	act(next, coord.Order{Name: "notify", Target: first.Target, Instance: "2"}, coord.ErrDone, 4)

	act(next, begun("move", true, failed), failed, 4)
	act(next, begun("move", true, nil), coord.ErrDone, 4)
	act(next, begun("move", false, nil), coord.ErrDone, 4) // as was recorded then
	act(next, begun("copy", false, nil), nil, 5)
}

func testRelease(t *testing.T, c Config) {
	b := c.New(t)
	a := launch(t, c, "a", b)
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
	other := start(t, c, "b", b)
	until(t, "a has to give up what is b's", func() bool {
		owned, _ := a.Owned()
		return len(leaving(owned)) > 0 && owned[id].Leaving
	})
	now, _ := a.Owned()
	if err := a.Acts().Do(t.Context(), coord.Order{Name: "notify", Target: o.Target, Instance: "1"}, nil); !errors.Is(err, coord.ErrNotOwner) {
		t.Errorf("an act begins in a shard that is leaving: %v", err)
	}
	soon, cancel := context.WithCancel(t.Context())
	defer cancel()
	gone := slices.DeleteFunc(leaving(now), func(other shard.ID) bool { return other == id })[0] // no act is done for it
	released := make(chan error, 1)
	go func() { released <- a.Release(soon, id, gone) }()
	isOwn := func(id shard.ID) bool {
		e, err := b.Get(t.Context(), "fleet/shard/"+id.String())
		if err != nil {
			t.Fatal(err)
		}
		return e.Created == now[id].Token
	}
	until(t, "a shard without acts is released with one that has an act", func() bool { return !isOwn(gone) })
	cancel()
	if err := <-released; !errors.Is(err, context.Canceled) || !isOwn(id) {
		t.Errorf("a shard with an act was released: %v", err)
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
}

func testStale(t *testing.T, c Config) {
	c.TTL = c.ShortTTL
	b := c.New(t)
	forgetful := &cutOff{Backend: b}
	a := launch(t, c, "a", forgetful)
	const target = "shop/web"
	id := shard.Of(target)
	var before coord.Owned
	ended := make(chan error, 1)
	until(t, "an act has begun", func() bool {
		settled(t, a)
		awaitLoaded(t, a, target)
		before, _ = a.Owned()
		acting := make(chan struct{})
		go func() {
			ended <- a.Acts().Do(t.Context(), coord.Order{Name: "restart", Target: target, Instance: "1"}, func(ctx context.Context) error {
				close(acting)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		select {
		case <-acting:
			return true
		case err := <-ended:
			t.Logf("the lease has ended before the act: %v", err)
			return false
		}
	})
	forgetful.isForgetful.Store(true)
	other := start(t, c, "b", b)
	until(t, "b owns all shards", func() bool { owned, _ := other.Owned(); return len(owned) == shard.Count })
	select {
	case err := <-ended:
		if !errors.Is(err, coord.ErrNotAllowed) {
			t.Errorf("an act has ended with the lease, but by %v", err)
		}
	case <-time.After(patience):
		t.Fatal("an act goes on without the lease of its engine")
	}
	if err := a.Store(t.Context(), coord.Memory{Target: target, Token: before[id].Token, Value: []byte("stale")})[0]; !errors.Is(err, coord.ErrNotOwner) {
		t.Fatalf("shard %v: an owner without a lease writes: %v", id, err)
	}
	if memories, err := other.Load(t.Context(), id); err != nil || len(memories[id].ByTarget) > 0 {
		t.Fatalf("shard %v has %v, %v", id, memories, err)
	}
}

func testNames(t *testing.T, c Config) {
	b := c.New(t)
	first := start(t, c, "a", b)
	settled(t, first)
	second := start(t, c, "a", b)
	time.Sleep(c.TTL / 2)
	if owned, _ := second.Owned(); len(owned) != 0 {
		t.Errorf("it owns %d shards", len(owned))
	}
	first.end()
	settled(t, second)
}
