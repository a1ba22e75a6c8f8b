package fleet

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/restart"
)

// fixedFloor is a Floor whose groups withhold nothing, or everything.
type fixedFloor struct {
	groups     []string
	withheldBy string
}

func (f *fixedFloor) Floors(string) []string   { return f.groups }
func (f *fixedFloor) WithheldBy(string) string { return f.withheldBy }

// A restart is reserved in all of its groups or in none, by the owner, and only if the store has not changed since.
func TestARestartIsReservedByWhatTheStoreHasShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := mirrored(t, nil)
		co, floor := v.coordinator, &fixedFloor{}
		f := &floors{config: Config{Coordinator: co, Floor: floor}, desired: &desired{}}
		shards, _ := co.Owned()
		token := shards[shard.Of("web")].Token
		show := func() {
			all, _, err := co.Backend().Range(t.Context(), coord.KeyFloor)
			if err != nil {
				t.Fatal(err)
			}
			var events []coord.Event
			for _, e := range all {
				events = append(events, coord.Event{Entry: e})
			}
			f.changed(events, true)
		}
		reserve := func(token coord.Revision) error {
			return f.reserve(t.Context(), "web", "1", coord.Owns(shard.Of("web"), token))
		}
		wantReserved := func(when string, want ...string) {
			t.Helper()
			show()
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

// etcd takes requests of 1.5 MiB, and a reservation puts all groups of its target again.
func TestReservationsAreBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := mirrored(t, nil)
		floor := &fixedFloor{groups: []string{"a"}}
		f := &floors{config: Config{Coordinator: v.coordinator, Floor: floor}, desired: &desired{}}
		shards, _ := v.coordinator.Owned()
		owned := coord.Owns(shard.Of("web"), shards[shard.Of("web")].Token)
		f.reserved = map[string]reservedGroup{}
		for _, group := range []string{"a", "b"} {
			g := reservedGroup{instances: map[string]string{}}
			for i := range maxReserved {
				g.instances[fmt.Sprintf("%0512d", i)] = strings.Repeat("x", 200)
			}
			f.reserved[group] = g
		}
		reserve := func() error { return f.reserve(t.Context(), "web", "1", owned) }
		if err := reserve(); err == nil || !strings.Contains(err.Error(), "1024 restarts are reserved in group a") {
			t.Errorf("in a full group: %v", err)
		}
		for _, g := range f.reserved {
			delete(g.instances, fmt.Sprintf("%0512d", 0))
			g.instances["web"] = "0"
		}
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
	f := &floors{}
	var events []coord.Event
	for _, key := range []string{"%zz", "a/b", "shop%2f", "shop/generation"} {
		events = append(events, coord.Event{Entry: coord.Entry{Key: coord.KeyFloor + key, Modified: 1, Value: []byte(`{"web":"1"}`)}})
	}
	if f.changed(events, true); len(f.reserved) > 0 {
		t.Errorf("there are %v", f.reserved)
	}
}

// While the reservations of a group cannot be read, no restart is reserved there, and the last known ones count.
func TestNoRestartIsReservedByReservationsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := mirrored(t, nil)
		var log strings.Builder
		f := &floors{
			config:  Config{Coordinator: v.coordinator, Floor: &fixedFloor{groups: []string{"a/b"}}},
			desired: &desired{}, sparse: sparselog.New(slog.New(slog.NewTextHandler(&log, nil))),
		}
		shards, _ := v.coordinator.Owned()
		owned := coord.Owns(shard.Of("web"), shards[shard.Of("web")].Token)
		reserve := func() error { return f.reserve(t.Context(), "web", "1", owned) }
		shows := func(value string, modified coord.Revision, isAll bool) {
			f.changed([]coord.Event{{Entry: coord.Entry{Key: floorKey("a/b"), Modified: modified, Value: []byte(value)}}}, isAll)
		}
		shows(`{"db":"1"}`, 1, true)
		for _, isAll := range []bool{false, true} {
			shows(`{"db":1}`, 2, isAll)
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
		if f.changed([]coord.Event{{Entry: coord.Entry{Key: floorKey("a/b")}, Deleted: true}}, false); reserve() != nil {
			t.Error("no restart is reserved after the value was deleted")
		}
	})
}
