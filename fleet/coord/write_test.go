package coord_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
)

func TestWhatIsPutWithTheLeaseOfAMembershipEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frozen{Local: coord.NewLocal()}
		co, end := run(t, coord.Config{Name: "a", Backend: f})
		none, changed := co.Lease()
		if none != 0 {
			t.Errorf("before it has joined, its lease is %v", none)
		}
		<-changed
		first, changed := co.Lease()
		if first == 0 {
			t.Fatal("a member has no lease")
		}
		put := coord.Transaction{Then: []coord.Change{{Key: "x", Lease: first}}}
		if _, err := co.Backend().Commit(t.Context(), put); err != nil {
			t.Fatal(err)
		}
		f.isEnding.Store(true)
		<-changed
		none, changed = co.Lease()
		if e, err := f.Get(t.Context(), "x"); none != 0 || e.Created != 0 || err != nil {
			t.Errorf("its lease has ended, it is %v, and what was put: %+v, %v", none, e, err)
		}
		f.isEnding.Store(false)
		<-changed
		if again, _ := co.Lease(); again == 0 || again == first {
			t.Errorf("after %v it is a member by %v", first, again)
		}
		end()
		if none, _ := co.Lease(); none != 0 {
			t.Errorf("after it has left, its lease is %v", none)
		}
	})
}

func TestOnlyTheOwnerWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co, _ := run(t, coord.Config{Name: "a"})
		time.Sleep(time.Second)
		owned, _ := co.Owned()
		id := shard.Of("web")
		var changes []coord.Change
		for i := range 2*coord.MaxTransactions + 1 {
			changes = append(changes, coord.Change{Key: fmt.Sprintf("x/%03d", i)})
		}
		if err := co.Write(t.Context(), id, owned[id].Token, changes...); err != nil {
			t.Error(err)
		}
		if entries, _, err := co.Backend().Range(t.Context(), "x/"); err != nil || len(entries) != len(changes) {
			t.Errorf("%d of %d changes were made, %v", len(entries), len(changes), err)
		}
		for _, token := range []coord.Revision{0, owned[id].Token - 1, owned[id].Token + 1} {
			if err := co.Write(t.Context(), id, token, coord.Change{Key: "y"}); !errors.Is(err, coord.ErrNotOwner) {
				t.Errorf("with the token %d: %v", token, err)
			}
		}
		if e, err := co.Backend().Get(t.Context(), "y"); err != nil || e.Created != 0 {
			t.Errorf("with other tokens %+v was put, %v", e, err)
		}
	})
}
