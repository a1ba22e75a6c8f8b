package coord_test

import (
	"testing"
	"testing/synctest"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/tests/coordtest"
)

func TestWhatIsPutWithTheLeaseOfAMembershipEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frozen{Local: coordtest.NewLocal()}
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
