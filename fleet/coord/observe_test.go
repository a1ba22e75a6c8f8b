package coord_test

import (
	"testing"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/tests/coordtest"
)

// replaced is a Backend that can be replaced by another one.
type replaced struct{ coord.Backend }

func TestARestoreIsNoticedOnce(t *testing.T) {
	b := &replaced{coordtest.NewLocal()}
	restores := 0
	seen := coord.Observe(b, func() { restores++ })
	want := func(when string, want int) {
		t.Helper()
		for range 2 {
			if _, _, err := seen.Range(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		if restores != want {
			t.Errorf("%s: %d restores were noticed, want %d", when, restores, want)
		}
	}
	put := func() {
		if _, err := seen.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: "a"}}}); err != nil {
			t.Fatal(err)
		}
	}
	put()
	want("before", 0)
	b.Backend = coordtest.NewLocal()
	want("an empty store", 1)
	for range 3 {
		put()
	}
	for range seen.Watch(t.Context(), "", 0) {
		break
	}
	b.Backend = coordtest.NewLocal()
	put()
	want("after what a watch has shown", 2)
	b.Backend = coordtest.NewLocal()
	for range 2 {
		put()
	}
	want("a store with more changes", 2)
}
