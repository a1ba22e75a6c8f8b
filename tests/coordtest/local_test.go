package coordtest_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestLocalConforms(t *testing.T) {
	tier.Slow(t)
	coordtest.Run(t, coordtest.Config{
		New: func(*testing.T) coord.Backend { return coordtest.NewLocal() },
		TTL: coord.MinTTL,
		Run: synctest.Test,
	})
}

// Lease 0 means no lease: revoking it does not delete entries without a lease.
func TestRevokingNoLeaseDeletesNothing(t *testing.T) {
	b := coordtest.NewLocal()
	if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: "memory/0001/web", Value: []byte("x")}}}); err != nil {
		t.Fatal(err)
	}
	if err := b.Revoke(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if e, err := b.Get(t.Context(), "memory/0001/web"); err != nil || e.Created == 0 {
		t.Errorf("the entry is gone: %v", err)
	}
}

// A range has the entries with its prefix, sorted, whatever was put and deleted since the previous range.
func TestARangeHasWhatIsStored(t *testing.T) {
	b := coordtest.NewLocal()
	rng := rand.New(rand.NewPCG(1, 1))
	want := map[string]bool{}
	for range 300 {
		var all []coord.Change
		for _, n := range rng.Perm(12)[:rng.IntN(6)] {
			key := fmt.Sprintf("%c/%d", 'a'+n%3, n)
			if isDeleted := rng.IntN(2) == 0; isDeleted {
				delete(want, key)
				all = append(all, coord.Change{Key: key, Delete: true})
			} else {
				want[key] = true
				all = append(all, coord.Change{Key: key, Value: []byte(key)})
			}
		}
		if _, err := b.Commit(t.Context(), coord.Transaction{Then: all}); err != nil {
			t.Fatal(err)
		}
		prefix := []string{"", "a/", "b/1", "c"}[rng.IntN(4)]
		entries, _, err := b.Range(t.Context(), prefix)
		if err != nil {
			t.Fatal(err)
		}
		var got, wanted []string
		for _, e := range entries {
			got = append(got, string(e.Value))
		}
		for key := range want {
			if strings.HasPrefix(key, prefix) {
				wanted = append(wanted, key)
			}
		}
		slices.Sort(wanted)
		if !slices.Equal(got, wanted) {
			t.Fatalf("%q has %v, want %v", prefix, got, wanted)
		}
	}
}
