package coord_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// shaky is a Backend whose store can be replaced, and whose watches can be ended.
type shaky struct {
	storeMu sync.Mutex // guards all below
	store   *coordtest.Local
	ended   chan struct{} // closed when watches must end
	isAway  bool
}

func newShaky() *shaky { return &shaky{store: coordtest.NewLocal(), ended: make(chan struct{})} }

var errShaken = errors.New("the store is away")

// shake ends all watches, and replaces the store unless store is nil. While isAway is set, it does not respond.
func (s *shaky) shake(store *coordtest.Local, isAway bool) {
	s.storeMu.Lock()
	defer s.storeMu.Unlock()
	if s.isAway = isAway; store != nil {
		s.store = store
	}
	close(s.ended)
	s.ended = make(chan struct{})
}

func (s *shaky) now() (store *coordtest.Local, ended <-chan struct{}, err error) {
	s.storeMu.Lock()
	defer s.storeMu.Unlock()
	if s.isAway {
		err = errShaken
	}
	return s.store, s.ended, err
}

func (s *shaky) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	b, _, err := s.now()
	if err != nil {
		return 0, err
	}
	return b.Grant(ctx, ttl)
}

func (s *shaky) KeepAlive(ctx context.Context, l coord.Lease) error {
	b, _, err := s.now()
	if err != nil {
		return err
	}
	return b.KeepAlive(ctx, l)
}

func (s *shaky) Revoke(ctx context.Context, l coord.Lease) error {
	b, _, err := s.now()
	if err != nil {
		return err
	}
	return b.Revoke(ctx, l)
}

func (s *shaky) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	b, _, err := s.now()
	if err != nil {
		return nil, err
	}
	return b.Commit(ctx, all...)
}

func (s *shaky) Get(ctx context.Context, key string) (coord.Entry, error) {
	b, _, err := s.now()
	if err != nil {
		return coord.Entry{}, err
	}
	return b.Get(ctx, key)
}

func (s *shaky) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	b, _, err := s.now()
	if err != nil {
		return nil, 0, err
	}
	return b.Range(ctx, prefix)
}

func (s *shaky) RangeAll(ctx context.Context, prefixes ...string) ([][]coord.Entry, error) {
	b, _, err := s.now()
	if err != nil {
		return nil, err
	}
	return b.RangeAll(ctx, prefixes...)
}

func (s *shaky) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	return func(yield func([]coord.Event, error) bool) {
		b, ended, err := s.now()
		if err != nil {
			yield(nil, err)
			return
		}
		ctx, end := context.WithCancelCause(ctx)
		var waiting sync.WaitGroup
		defer waiting.Wait()
		defer end(nil)
		waiting.Go(func() {
			select {
			case <-ended:
				end(errShaken)
			case <-ctx.Done():
			}
		})
		for events, err := range b.Watch(ctx, prefix, after) {
			if err != nil {
				err = context.Cause(ctx)
			}
			if !yield(events, err) || err != nil {
				return
			}
		}
	}
}

// mirrored is a Mirror of numbers that records its changes.
type mirrored struct {
	*testing.T
	*coord.Mirror[int]
	store *shaky

	saidMu sync.Mutex // guards all below
	said   map[string]coord.Item[int]
	own    map[string]string // the entries that this engine should have
}

// unreadable is the parsed value of an entry that is not a number.
const unreadable = -1

// mirror runs a Mirror in a fleet of one engine until end is called or the test ends.
func mirror(t *testing.T, store *shaky) (m *mirrored, end func()) {
	t.Helper()
	m = &mirrored{T: t, store: store, said: map[string]coord.Item[int]{}, own: map[string]string{}}
	_, end = launch(t, coord.Config{Name: "a", Backend: store}, func(ctx context.Context, co *coord.Coordinator) {
		m.saidMu.Lock()
		m.Mirror = coord.NewMirror(co, coord.Kind[int]{
			Keys: coord.VoteKeys, MaxValue: 8, Problem: "numbers cannot be followed", OwnProblem: "numbers cannot be put",
			Parse: func(_ string, e coord.Entry, before int) int {
				n, err := strconv.Atoi(string(e.Value))
				if err != nil {
					return unreadable * max(before, 1)
				}
				return n
			},
			Changed: m.changed,
			Own: func(name string, l coord.Lease) []byte {
				m.saidMu.Lock()
				defer m.saidMu.Unlock()
				if l == 0 {
					m.Errorf("%s is asked for without a lease", name)
				}
				if value, exists := m.own[name]; exists {
					return []byte(value)
				}
				return nil
			},
		})
		running := m.Mirror
		m.saidMu.Unlock()
		running.Run(ctx)
	})
	synctest.Wait()
	return m, end
}

// changed checks that each change starts from the value of the previous change.
func (m *mirrored) changed(all []coord.ItemChange[int], isAll bool) {
	m.saidMu.Lock()
	defer m.saidMu.Unlock()
	names := map[string]bool{}
	for _, c := range all {
		if names[c.Name] = true; c.Before != m.said[c.Name] {
			m.Errorf("%s changes from %v, and it was %v", c.Name, c.Before, m.said[c.Name])
		}
		if m.said[c.Name] = c.Now; c.Now.Modified == 0 {
			delete(m.said, c.Name)
		}
	}
	for name := range m.said {
		if isAll && !names[name] {
			m.Errorf("%s was read, and is not among the changes", name)
		}
	}
}

// keep sets the entry that this engine should have, or none for "".
func (m *mirrored) keep(name, value string) {
	m.saidMu.Lock()
	if m.own[name] = value; value == "" {
		delete(m.own, name)
	}
	m.saidMu.Unlock()
	m.Mark(name)
}

// markAll marks all entries of this engine.
func (m *mirrored) markAll() {
	m.saidMu.Lock()
	defer m.saidMu.Unlock()
	for name := range m.own {
		m.Mark(name)
	}
}

// put puts entries by key; "" deletes one.
func (m *mirrored) put(keysAndValues ...string) {
	m.Helper()
	store, _, _ := m.store.now()
	for i := 0; i < len(keysAndValues); i += 2 {
		c := coord.Change{Key: keysAndValues[i], Value: []byte(keysAndValues[i+1]), Delete: keysAndValues[i+1] == ""}
		if _, err := store.Commit(m.Context(), coord.Transaction{Then: []coord.Change{c}}); err != nil {
			m.Fatal(err)
		}
	}
}

// check checks that the Mirror equals the store, and that the store has the entries that this engine should have.
func (m *mirrored) check(when string) {
	m.Helper()
	store, _, _ := m.store.now()
	all, _, err := store.Range(m.Context(), "vote/")
	if err != nil {
		m.Fatal(err)
	}
	want, own := map[string]coord.Revision{}, map[string]string{}
	for _, e := range all {
		name := strings.TrimPrefix(e.Key, "vote/")
		if name == "" {
			continue
		}
		want[name] = e.Modified
		if name == "a" || strings.HasPrefix(name, "a/") {
			own[name] = string(e.Value)
		}
		n, err := strconv.Atoi(string(e.Value))
		if got := m.Get(name).Value; (err != nil || len(e.Value) > 8) && got >= 0 || err == nil && len(e.Value) <= 8 && got != n {
			m.Errorf("%s: %s is %d, and the store has %q", when, name, got, e.Value)
		}
	}
	got := map[string]coord.Revision{}
	for name, item := range m.All() {
		got[name] = item.Modified
	}
	m.saidMu.Lock()
	defer m.saidMu.Unlock()
	if !maps.Equal(got, want) || !maps.Equal(m.All(), m.said) {
		m.Errorf("%s: there are %v, it has said %v, and the store has %v", when, m.All(), m.said, want)
	}
	if !maps.Equal(own, m.own) {
		m.Errorf("%s: the store has %v of this engine, and it is to have %v", when, own, m.own)
	}
}

func TestAMirrorHasWhatTheStoreHas(t *testing.T) {
	tier.Slow(t)
	for seed := range uint64(tier.Pick(2, 6, 100)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playMirror(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

// playMirror changes entries at random, by this engine, by others and by strangers, while the store is unreachable, is
// restored from a snapshot or wiped, and loses changes.
func playMirror(t *testing.T, random *rand.Rand) {
	m, _ := mirror(t, newShaky())
	name := func(engine string) string {
		if n := random.IntN(4); n > 0 {
			return engine + "/" + strconv.Itoa(n)
		}
		return engine
	}
	for round := range 40 {
		for range random.IntN(8) {
			switch random.IntN(6) {
			case 0:
				m.keep(name("a"), strconv.Itoa(random.IntN(1000)))
			case 1:
				m.keep(name("a"), "")
			case 2:
				m.put("vote/"+name("b"), "")
			case 3:
				m.put("vote/"+name("b"), strconv.Itoa(random.IntN(1000)))
			case 4: // of a later release, too long, under the name of this engine, and without a name
				m.put("vote/"+name("b"), "?", "vote/"+name("c"), "123456789", "vote/"+name("a"), "7", "vote/", "1")
			case 5:
				time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			}
		}
		switch random.IntN(6) {
		case 0: // watches end
			m.store.shake(nil, false)
		case 1: // unreachable, for longer than the lease lasts or not
			m.store.shake(nil, true)
			time.Sleep(time.Duration(random.IntN(10)) * time.Second)
			m.store.shake(nil, false)
		case 2: // wiped
			m.store.shake(coordtest.NewLocal(), false)
			m.put("vote/b", "5")
		}
		time.Sleep(30 * time.Second)
		m.markAll() // as a program does after the Mirror was read again
		time.Sleep(10 * time.Second)
		m.check(fmt.Sprint("round ", round))
	}
}

func TestAMirrorReadsAgainWhatTheStoreHasForgotten(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		m, _ := mirror(t, newShaky())
		time.Sleep(10 * time.Second)
		m.put("vote/b", "1", "vote/c", "2")
		m.store.shake(nil, true)
		m.put("vote/b", "", "vote/c", "3")
		for i := range 1 << 16 {
			m.put("other", strconv.Itoa(i))
		}
		m.store.shake(nil, false)
		time.Sleep(time.Minute)
		m.check("after a compaction")
	})
}

// A Mirror reports since when it has missed no changes, and stays unchanged while it may miss some.
func TestAMirrorSaysHowCurrentItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newShaky()
		store.shake(nil, true)
		m, _ := mirror(t, store)
		isSynced := func() bool {
			select {
			case <-m.Synced():
				return true
			default:
				return false
			}
		}
		time.Sleep(time.Minute)
		if isSynced() || m.State() != (coord.MirrorState{}) || !m.Heard().IsZero() {
			t.Errorf("before the store has answered it is read: %v, with %+v, heard %v", isSynced(), m.State(), m.Heard())
		}
		store.shake(nil, false)
		m.put("vote/b", "1")
		time.Sleep(time.Minute)
		if s := m.State(); !isSynced() || s.Lease == 0 || time.Since(s.ReadAt) < 50*time.Second || time.Since(m.Heard()) > 2*time.Second {
			t.Errorf("after a minute it is read: %v, with %+v, heard %v", isSynced(), s, m.Heard())
		}
		store.shake(nil, true)
		away := time.Now()
		time.Sleep(time.Minute)
		if m.State() != (coord.MirrorState{}) || m.Heard().After(away) || m.Get("b").Value != 1 {
			t.Errorf("while the store is away: %+v, heard %v, has %v", m.State(), m.Heard(), m.All())
		}
		if m.Get("c").Modified != 0 {
			t.Error("it has an entry that nobody has put")
		}
	})
}

// A late request finds another entry, and changes nothing.
func TestAPutRequiresTheEntryThatWasShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := mirror(t, newShaky())
		put := func(value string, shown coord.Revision) bool {
			store, _, _ := m.store.now()
			of := []byte(value)
			if value == "" {
				of = nil
			}
			condition, change := m.Put("b", shown, of, 0)
			made, err := store.Commit(t.Context(), coord.Transaction{If: []coord.Condition{condition}, Then: []coord.Change{change}})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			return made[0]
		}
		if !put("1", 0) || put("2", 0) {
			t.Error("a new entry is not put, or twice")
		}
		first := m.Get("b").Modified
		if !put("3", first) || put("4", first) || put("", first) {
			t.Error("an entry is not replaced, or by who has not seen it")
		}
		if !put("", m.Get("b").Modified) || len(m.All()) > 0 {
			t.Errorf("it is not deleted: %v", m.All())
		}
	})
}

// An engine that is not a member puts nothing, and nothing is put while nothing changes.
func TestOnlyMembersPutAndOnlyWhatDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, end := mirror(t, newShaky())
		m.keep("a", "1")
		m.keep("a/x", "2")
		time.Sleep(10 * time.Second)
		m.check("put")
		first := m.Get("a").Modified
		m.markAll()
		time.Sleep(time.Minute)
		if now := m.Get("a").Modified; now != first {
			t.Errorf("it is put again by %d after %d", now, first)
		}
		end()
		store, _, _ := m.store.now()
		if all, _, err := store.Range(t.Context(), "vote/"); err != nil || len(all) > 0 {
			t.Errorf("after the end there are %v, %v", all, err)
		}
	})
}
