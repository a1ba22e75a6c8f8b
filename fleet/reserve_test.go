package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/restart"
)

// fixedFloor is a Floor whose groups withhold either nothing or everything.
type fixedFloor struct {
	groups     []string
	withheldBy string
}

func (f *fixedFloor) Floors(string) []string   { return f.groups }
func (f *fixedFloor) WithheldBy(string) string { return f.withheldBy }

// floorsOf returns the floors of an engine, which have read nothing yet.
func floorsOf(co *coord.Coordinator, with Floor, log *slog.Logger) *floors {
	return newFloors(Config{Coordinator: co, Floor: with}, &desired{}, func(string) bool { return true }, sparselog.New(log))
}

// show makes floors read the current contents of the store, but no later changes.
func show(t *testing.T, f *floors) {
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.reserved.Run(ctx) })
	synctest.Wait()
	stop()
	running.Wait()
}

// store puts the reservations of a group as text, or deletes them for "".
func store(t *testing.T, co *coord.Coordinator, key, value string) {
	t.Helper()
	change := coord.Change{Key: coord.FloorKeys.Prefix() + key, Value: []byte(value), Delete: value == ""}
	if _, err := co.Backend().Commit(t.Context(), coord.Transaction{Then: []coord.Change{change}}); err != nil {
		t.Fatal(err)
	}
}

// A restart is reserved in all of its groups or in none, by the owner, and only if the store has not changed since it
// was read.
func TestARestartIsReservedByWhatTheStoreHasShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := mirrored(t, nil)
		co, floor := v.coordinator, &fixedFloor{}
		f := floorsOf(co, floor, nil)
		shards, _ := co.Owned()
		token := shards[shard.Of("web")].Token
		reserve := func(token coord.Revision) error {
			return f.reserve(t.Context(), "web", "1", coord.Owns(shard.Of("web"), token))
		}
		wantReserved := func(when string, want ...string) {
			t.Helper()
			show(t, f)
			for _, group := range []string{"shop", "a/b"} {
				if got := f.targets(group); !slices.Equal(got, want) {
					t.Errorf("%s: in %s are reserved %q, want %q", when, group, got, want)
				}
			}
		}

		for i := range maxFloors + 1 {
			floor.groups = append(floor.groups, fmt.Sprint("group-", i))
		}
		if err := reserve(token); err == nil || !strings.Contains(err.Error(), "at most 32 are allowed") {
			t.Errorf("in too many groups: %v", err)
		}
		floor.groups, floor.withheldBy = []string{"shop", "a/b"}, "shop"
		var withheld *restart.WithheldError
		if err := reserve(token); !errors.As(err, &withheld) || withheld.Group != "shop" {
			t.Errorf("got %v", err)
		}
		floor.withheldBy = ""
		if err := reserve(token + 1); !errors.Is(err, coord.ErrNotOwner) {
			t.Errorf("by another engine: %v", err)
		}
		wantReserved("after errors")
		if err := reserve(token); err != nil {
			t.Error(err)
		}
		if err := reserve(token); err == nil {
			t.Error("it is reserved by what was read before another reservation")
		}
		wantReserved("after it was reserved", "web")
		if err := reserve(token); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}

// Etcd accepts requests of 1.5 MiB, and a reservation puts all groups of its target again.
func TestReservationsAreBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := mirrored(t, nil)
		floor := &fixedFloor{groups: []string{"a"}}
		f := floorsOf(v.coordinator, floor, nil)
		shards, _ := v.coordinator.Owned()
		owned := coord.Owns(shard.Of("web"), shards[shard.Of("web")].Token)
		instances := map[string]string{}
		fill := func() {
			value, _ := json.Marshal(instances)
			store(t, v.coordinator, "a", string(value))
			store(t, v.coordinator, "b", string(value))
			show(t, f)
		}
		for i := range maxReserved {
			instances[fmt.Sprintf("%0512d", i)] = strings.Repeat("x", 200)
		}
		fill()
		reserve := func() error { return f.reserve(t.Context(), "web", "1", owned) }
		if err := reserve(); err == nil || !strings.Contains(err.Error(), "1024 restarts are reserved in group a") {
			t.Errorf("in a full group: %v", err)
		}
		delete(instances, fmt.Sprintf("%0512d", 0))
		instances["web"] = "0"
		fill()
		floor.groups = []string{"a", "b"}
		if err := reserve(); err == nil || !strings.Contains(err.Error(), "at most 1048576 are allowed") {
			t.Errorf("in two groups, which are too large together: %v", err)
		}
		floor.groups = []string{"a"}
		if err := reserve(); err != nil {
			t.Errorf("again in a full group: %v", err)
		}
	})
}

func TestOnlyKeysOfEnginesAreReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := mirrored(t, nil)
		for _, key := range []string{"%zz", "a/b", "shop%2f", "shop/generation"} {
			store(t, v.coordinator, key, `{"web":"1"}`)
		}
		f := floorsOf(v.coordinator, nil, nil)
		if show(t, f); len(f.reserved.All()) > 0 {
			t.Errorf("there are %v", f.reserved.All())
		}
	})
}

// While the reservations of a group cannot be read, no restart is reserved in it, and the last known reservations count.
func TestNoRestartIsReservedByReservationsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := mirrored(t, nil)
		var log strings.Builder
		f := floorsOf(v.coordinator, &fixedFloor{groups: []string{"a/b"}}, slog.New(slog.NewTextHandler(&log, nil)))
		shards, _ := v.coordinator.Owned()
		owned := coord.Owns(shard.Of("web"), shards[shard.Of("web")].Token)
		reserve := func() error { return f.reserve(t.Context(), "web", "1", owned) }
		store(t, v.coordinator, "a%2Fb", `{"db":"1"}`)
		show(t, f)
		store(t, v.coordinator, "a%2Fb", `{"db":1}`)
		for range 2 {
			show(t, f)
			if err := reserve(); err == nil || !strings.Contains(err.Error(), `the reservations of group a/b cannot be read`) || !strings.Contains(err.Error(), "floor/a%2Fb") {
				t.Errorf("got %v", err)
			}
			if got := f.targets("a/b"); !slices.Equal(got, []string{"db"}) {
				t.Errorf("%q are reserved", got)
			}
		}
		if n := strings.Count(log.String(), "group=a/b"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, log.String())
		}
		store(t, v.coordinator, "a%2Fb", "")
		if show(t, f); reserve() != nil {
			t.Error("no restart is reserved after the value was deleted")
		}
	})
}
