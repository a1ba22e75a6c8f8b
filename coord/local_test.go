package coord_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/coord/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestLocalConforms(t *testing.T) {
	tier.Slow(t)
	coordtest.Run(t, coordtest.Config{
		New: func(*testing.T) coord.Backend { return coord.NewLocal() },
		Run: synctest.Test,
	})
}

// What was stored does not stay in memory beside its newest value.
func TestALocalForgetsOldValues(t *testing.T) {
	b := coord.NewLocal()
	put := coord.Transaction{Then: []coord.Change{{Key: "memory/0001", Value: make([]byte, coord.MaxMemory)}}}
	for range 1000 {
		if _, err := b.Commit(t.Context(), put); err != nil {
			t.Fatal(err)
		}
	}
	if size := b.LogSize(); size > 32<<20 {
		t.Errorf("its log has %d bytes", size)
	}
	for _, err := range b.Watch(t.Context(), "memory/", 1) {
		if !errors.Is(err, coord.ErrCompacted) {
			t.Errorf("a watch from the beginning: %v", err)
		}
		break
	}
}

// The lease 0 is none: entries without a lease are not its own.
func TestRevokingNoLeaseDeletesNothing(t *testing.T) {
	b := coord.NewLocal()
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
