// Package coordtest has the laws that each implementation of coord.Backend must keep, and an implementation for tests.
//
//	coordtest.go  Run: the laws
//	local.go      Local: a store in this process
package coordtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
)

// Config defines how an implementation is tested.
type Config struct {
	New func(t *testing.T) coord.Backend // returns a backend without entries; called once per test
	TTL time.Duration                    // of the leases whose expiry is tested: longer than the backend and its machine may stall

	// Run runs a test, for example in a bubble of testing/synctest. Default: it calls test.
	Run func(t *testing.T, test func(t *testing.T))
}

// patience is how long a test waits for expected events.
const patience = 5 * time.Minute

// Run tests an implementation.
func Run(t *testing.T, c Config) {
	if c.Run == nil {
		c.Run = func(t *testing.T, test func(t *testing.T)) { test(t) }
	}
	for name, test := range map[string]func(*testing.T, Config){
		"TransactionsNeedTheirConditions": testTransactions,
		"ALargeValueIsStored":             testLarge,
		"ALeaseThatEndsDeletesItsEntries": testLeases,
		"AWatchMissesNothing":             testWatch,
	} {
		t.Run(name, func(t *testing.T) { c.Run(t, func(t *testing.T) { test(t, c) }) })
	}
}

// commit commits transactions, and returns which of them were applied.
func commit(t *testing.T, b coord.Backend, all ...coord.Transaction) string {
	t.Helper()
	made, err := b.Commit(t.Context(), all...)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(made)
}

// put returns a transaction that puts an entry if its key's entry was created by a revision; 0: if the key has none.
func put(key, value string, created coord.Revision, l coord.Lease) coord.Transaction {
	return coord.Transaction{If: []coord.Condition{{Key: key, Created: created}}, Then: []coord.Change{{Key: key, Value: []byte(value), Lease: l}}}
}

// entries returns the entries with a prefix as text, the first entry, and the current revision.
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
	many, at, err := b.Range(t.Context(), "many/") // more entries than some backends read by one request
	isSorted := slices.IsSortedFunc(many, func(a, b coord.Entry) int { return strings.Compare(a.Key, b.Key) })
	if err != nil || len(many) != coord.MaxTransactions*coord.MaxChanges || !isSorted || at < many[0].Modified {
		t.Errorf("%d entries, sorted: %v, at %d, %v", len(many), isSorted, at, err)
	}
	if _, err := b.Commit(t.Context(), append(most, put("many/more", "", 0, 0))...); err == nil {
		t.Error("too many transactions are made")
	}
	most[0].Then = append(most[0].Then, coord.Change{Key: "many/more"})
	if _, err := b.Commit(t.Context(), most...); err == nil {
		t.Error("a transaction makes too many changes")
	}
}

// testLarge stores a value of the maximum size of a pushed configuration: see fleet/revision.
func testLarge(t *testing.T, c Config) {
	b := c.New(t)
	value := strings.Repeat("x", 1400<<10)
	commit(t, b, put("large", value, 0, 0))
	if e, err := b.Get(t.Context(), "large"); err != nil || string(e.Value) != value {
		t.Errorf("it has %d bytes, %v", len(e.Value), err)
	}
}

func testLeases(t *testing.T, c Config) {
	b := c.New(t)
	for ttl := c.TTL; !endLease(t, b, ttl); ttl *= 2 {
		if ttl > time.Minute {
			t.Fatalf("a lease of %v is not kept alive in time", ttl)
		}
	}
}

// endLease keeps one lease alive while another expires. It returns false if the test is inconclusive, because the machine stalled
// for longer than the TTL.
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
	if !slices.IsSorted(deleted) {
		t.Errorf("it deletes %v, not in the order of keys", deleted)
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

// keepAlive keeps a lease alive that was granted at a time, until ctx is done or the machine has stalled for longer than the TTL.
// It returns the start time of the latest successful request, or granted if there was none.
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

// MarkLoaded marks the shards of a Coordinator as loaded once the Coordinator owns them, until ctx is done, like a program that has
// loaded their memories.
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
