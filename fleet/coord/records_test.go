package coord_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/tests/coordtest"
)

// inShard returns names of n targets in a shard, with a common prefix.
func inShard(id shard.ID, begin string, n int) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprint(begin, i); shard.Of(name) == id {
			names = append(names, name)
		}
	}
	return names
}

// records returns the targets with records in a shard.
func records(t *testing.T, b coord.Backend, id shard.ID) string {
	t.Helper()
	entries, _, err := b.Range(t.Context(), "act/"+id.String()+"/")
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, e := range entries {
		targets = append(targets, strings.TrimPrefix(e.Key, "act/"+id.String()+"/"))
	}
	return strings.Join(targets, " ")
}

func TestRecordsOfTargetsThatAreGoneAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		co, _ := run(t, coord.Config{Name: "a", Backend: b})
		synctest.Wait()
		const id = 7
		targets := inShard(id, "shop/web-", coord.MaxTransactions+5)
		restart := func(target string, do func(context.Context) error) error {
			return co.Acts().Do(t.Context(), coord.Order{Target: target, Instance: "1"}, do)
		}
		for _, target := range targets {
			if err := restart(target, hold(0)); err != nil {
				t.Fatal(err)
			}
		}
		kept, busy := targets[0], targets[1]
		isKept := func(target string) bool { return target == kept }
		if other, err := coord.New(coord.Config{Name: "b", Backend: b}); err != nil {
			t.Fatal(err)
		} else if err := other.Acts().Forget(t.Context(), []shard.ID{id}, isKept); !errors.Is(err, coord.ErrNotOwner) {
			t.Errorf("by another engine: %v", err)
		}
		if n := len(strings.Fields(records(t, b, id))); n != len(targets) {
			t.Errorf("%d records are left by who does not own the shard", n)
		}
		if err := co.Acts().Do(t.Context(), coord.Order{Target: busy, Instance: "2"}, func(ctx context.Context) error {
			return co.Acts().Forget(ctx, []shard.ID{id}, isKept)
		}); err != nil {
			t.Error(err)
		}
		if got := records(t, b, id); got != kept+" "+busy && got != busy+" "+kept {
			t.Errorf("records are left of %s", got)
		}
		if err := restart(kept, nil); !errors.Is(err, coord.ErrDone) {
			t.Errorf("a target that is there is restarted again: %v", err)
		}
		if err := restart(busy, hold(0)); err != nil {
			t.Error(err)
		}
	})
}

// A pause stays while its target exists, whichever engine owns the target, unless the pause is deleted.
func TestPausesOfTargetsThatAreGoneAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		co, _ := run(t, coord.Config{Name: "a", Backend: b})
		synctest.Wait()
		const id = shard.ID(7)
		targets := inShard(id, "shop/web-", coord.MaxTransactions+5)
		left := func() (left []string) {
			entries, _, err := b.Range(t.Context(), "pause/"+id.String()+"/")
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				left = append(left, strings.TrimPrefix(e.Key, "pause/"+id.String()+"/"))
			}
			return left
		}
		for _, target := range targets {
			change := coord.Change{Key: coord.PauseKeys.Key(target), Value: []byte("{}")}
			if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{change}}); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(left()); n != len(targets) {
			t.Errorf("%d are stored", n)
		}
		if err := co.Acts().Forget(t.Context(), []shard.ID{id}, func(target string) bool { return target == targets[0] }); err != nil {
			t.Error(err)
		}
		if got := left(); len(got) != 1 || got[0] != targets[0] {
			t.Errorf("those of %v are left", got)
		}
	})
}
