package coord_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/coordtest"
)

// floorOf is a floor of groups which allows so many reservations besides.
func floorOf(others int, groups ...string) coord.Floor {
	return coord.Floor{Groups: groups, WithheldBy: func(reserved map[string][]string) string {
		for _, group := range groups {
			if len(reserved[group]) > others {
				return group
			}
		}
		return ""
	}}
}

// reservations returns the targets that are reserved in a group.
func reservations(t *testing.T, b coord.Backend, group string) (targets []string) {
	t.Helper()
	all, _, err := b.Range(context.Background(), coord.ReservationPrefix)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if r, ok := coord.ReservationOf(e); ok && r.Group == group {
			targets = append(targets, r.Target+"="+r.Instance)
		}
	}
	return targets
}

func restartOf(target string, instance int) coord.Order {
	return coord.Order{Name: "restart", Target: target, Instance: fmt.Sprint(instance)}
}

func nothing(context.Context) error { return nil }

// giveUp gives up the shards that others are to have, and marks its own as loaded.
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

// share is run for an engine of several.
func share(t *testing.T, c coord.Config) *coord.Coordinator {
	t.Helper()
	co, _ := launch(t, c, giveUp)
	return co
}

// Engines begin acts at the same time of which the group allows two.
func TestReservationsAreMadeOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		var engines []*coord.Coordinator
		for _, name := range []string{"a", "b", "c"} {
			engines = append(engines, share(t, coord.Config{Name: name, Backend: b}))
		}
		time.Sleep(time.Minute)
		var done, withheld atomic.Int64
		var acts sync.WaitGroup
		for i := range 30 {
			target := fmt.Sprint("web-", i)
			at := slices.IndexFunc(engines, func(co *coord.Coordinator) bool { return co.Acts().MayBegin(target) })
			acts.Go(func() {
				err := engines[at].Acts().DoAbove(t.Context(), restartOf(target, 0), floorOf(1, "shop/web"), nothing)
				var w *coord.WithheldError
				switch {
				case err == nil:
					done.Add(1)
				case errors.As(err, &w) && w.Group == "shop/web":
					withheld.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		acts.Wait()
		if got := reservations(t, b, "shop/web"); done.Load() != 2 || withheld.Load() != 28 || len(got) != 2 {
			t.Errorf("%d done, %d withheld, reserved: %v", done.Load(), withheld.Load(), got)
		}
	})
}

func TestAReservationLastsUntilItsOwnerEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		co, end := run(t, coord.Config{Name: "a", Backend: b})
		synctest.Wait()
		if err := co.Acts().DoAbove(t.Context(), restartOf("web", 1), floorOf(0, "shop", "all"), nothing); err != nil {
			t.Fatal(err)
		}
		end()
		next, _ := run(t, coord.Config{Name: "b", Backend: b})
		time.Sleep(time.Minute)
		if err := next.Acts().DoAbove(t.Context(), restartOf("db", 1), floorOf(0, "all"), nothing); err == nil {
			t.Error("the reservation of an engine that has ended does not count")
		}
		is := func(want string) func(string) bool { return func(instance string) bool { return instance == want } }
		for _, c := range []struct {
			instance string
			groups   []string
			left     int // of the two
		}{{"2", []string{"shop", "all"}, 2}, {"1", []string{"shop", "other"}, 1}, {"1", []string{"all"}, 0}} {
			if err := next.Acts().Unreserve(t.Context(), "web", c.groups, is(c.instance)); err != nil {
				t.Fatal(err)
			}
			if got := append(reservations(t, b, "shop"), reservations(t, b, "all")...); len(got) != c.left {
				t.Errorf("after the end of %s in %v: %v", c.instance, c.groups, got)
			}
		}
		if err := next.Acts().DoAbove(t.Context(), restartOf("db", 1), floorOf(0, "all"), nothing); err != nil {
			t.Error(err)
		}
	})
}

// While an act is done about its target a reservation stays, and it is that of the latest instance.
func TestAReservationStaysDuringTheActAboutItsTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		co, _ := run(t, coord.Config{Name: "a", Backend: b})
		synctest.Wait()
		for instance := range 3 {
			err := co.Acts().DoAbove(t.Context(), restartOf("web", instance), floorOf(1, "shop"), func(context.Context) error {
				if err := co.Acts().Unreserve(t.Context(), "web", []string{"shop"}, func(string) bool { return true }); !errors.Is(err, coord.ErrBusy) || !co.Acts().IsActing("web") {
					t.Errorf("during the act: %v", err)
				}
				return nil
			})
			if err != nil || co.Acts().IsActing("web") {
				t.Error(err)
			}
			if got, want := reservations(t, b, "shop"), []string{fmt.Sprint("web=", instance)}; !slices.Equal(got, want) {
				t.Errorf("reserved: %v, want %v", got, want)
			}
		}
	})
}

// overtaken is a Backend in which an act of another engine is reserved while one is to be reserved or to be ended.
type overtaken struct {
	*coord.Local
	overtake func()
}

func (o *overtaken) RangeAll(ctx context.Context, prefixes ...string) ([][]coord.Entry, error) {
	found, err := o.Local.RangeAll(ctx, prefixes...)
	if overtake := o.overtake; overtake != nil && prefixes[0] == "floor/shop/" {
		o.overtake = nil
		overtake()
	}
	return found, err
}

func TestWhatWasReadOfReservationsMustNotHaveChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &overtaken{Local: coord.NewLocal()}
		co, _ := run(t, coord.Config{Name: "a", Backend: b})
		synctest.Wait()
		reserve := func(target string) func() {
			return func() {
				if err := co.Acts().DoAbove(t.Context(), restartOf(target, 0), floorOf(9, "shop"), nothing); err != nil {
					t.Error(err)
				}
			}
		}
		b.overtake = reserve("db")
		err := co.Acts().DoAbove(t.Context(), restartOf("web", 0), floorOf(0, "shop"), nothing)
		if w := new(coord.WithheldError); !errors.As(err, &w) {
			t.Errorf("an act that was overtaken: %v, reserved: %v", err, reservations(t, b, "shop"))
		}
		b.overtake = reserve("cache")
		if err := co.Acts().Unreserve(t.Context(), "db", []string{"shop"}, func(string) bool { return true }); err != nil {
			t.Error(err)
		}
		if got := reservations(t, b, "shop"); !slices.Equal(got, []string{"cache=0", "db=0"}) {
			t.Errorf("reserved: %v", got)
		}
	})
}

// An engine that has lost the shard reserves nothing, and ends nothing.
func TestReservationsAreThoseOfTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		co, other := share(t, coord.Config{Name: "a", Backend: b}), share(t, coord.Config{Name: "b", Backend: b})
		time.Sleep(time.Minute)
		const target = "web"
		if !co.Acts().MayBegin(target) {
			co, other = other, co
		}
		err := other.Acts().DoAbove(t.Context(), restartOf(target, 0), floorOf(0, "shop"), nothing)
		if !errors.Is(err, coord.ErrNotOwner) || len(reservations(t, b, "shop")) > 0 {
			t.Errorf("%v, reserved: %v", err, reservations(t, b, "shop"))
		}
		if err := other.Acts().Unreserve(t.Context(), target, []string{"shop"}, func(string) bool { return true }); !errors.Is(err, coord.ErrNotOwner) {
			t.Error(err)
		}
	})
}

func TestAnActIsReservedInABoundedNumberOfGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co, _ := run(t, coord.Config{Name: "a"})
		synctest.Wait()
		var groups []string
		for i := range coord.MaxFloors {
			groups = append(groups, fmt.Sprint("group-", i))
		}
		if err := co.Acts().DoAbove(t.Context(), restartOf("web", 0), floorOf(0, groups...), nothing); err != nil {
			t.Error(err)
		}
		if err := co.Acts().DoAbove(t.Context(), restartOf("web", 1), floorOf(0, append(groups, "one more")...), nothing); err == nil {
			t.Error("one more is allowed")
		}
	})
}

// An operator may order a restart while a reservation of the one before is being deleted.
func TestAnActWaitsForAnUnreserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co, _ := run(t, coord.Config{Name: "a", Backend: coord.NewLocal()})
		synctest.Wait()
		floor := floorOf(1, "shop")
		if err := co.Acts().DoAbove(t.Context(), restartOf("web", 1), floor, nothing); err != nil {
			t.Fatal(err)
		}
		acted, gaveUp := make(chan error, 1), make(chan error, 1)
		err := co.Acts().Unreserve(t.Context(), "web", floor.Groups, func(string) bool {
			impatient, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			go func() { gaveUp <- co.Acts().Do(impatient, restartOf("web", 2), nothing) }()
			go func() { acted <- co.Acts().DoAbove(t.Context(), restartOf("web", 2), floor, nothing) }()
			time.Sleep(2 * time.Second)
			return true
		})
		if err != nil {
			t.Error(err)
		}
		if err := <-acted; err != nil {
			t.Errorf("an act during an Unreserve: %v", err)
		}
		if err := <-gaveUp; !errors.Is(err, coord.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an act that waits no longer: %v", err)
		}
	})
}
