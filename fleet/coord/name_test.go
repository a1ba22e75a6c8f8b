package coord_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/tests/coordtest"
)

// deleteMember deletes the key of a member, as an operator does by mistake.
func deleteMember(t *testing.T, b coord.Backend, name string) {
	t.Helper()
	if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: "fleet/m/" + name, Delete: true}}}); err != nil {
		t.Fatal(err)
	}
}

// withToken counts the owned shards that have a token.
func withToken(owned coord.Owned) (n int) {
	for _, o := range owned {
		if o.Token != 0 {
			n++
		}
	}
	return n
}

func TestTwoEnginesOfANameNeverHaveTheSameToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		first, _ := run(t, coord.Config{Name: "a", Backend: b})
		synctest.Wait()
		second, _ := run(t, coord.Config{Name: "a", Backend: b})
		time.Sleep(time.Second)
		deleteMember(t, b, "a")
		for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(100 * time.Millisecond) {
			one, _ := first.Owned()
			two, _ := second.Owned()
			for id, o := range one {
				if o.Token != 0 && two[id].Token == o.Token {
					t.Fatalf("after %v both own shard %v with token %d", time.Since(begin), id, o.Token)
				}
			}
		}
		one, _ := first.Owned()
		two, _ := second.Owned()
		if n, m := withToken(one), withToken(two); max(n, m) != shard.Count || min(n, m) != 0 {
			t.Errorf("they own %d and %d shards", n, m)
		}
	})
}

func TestAnEngineWhoseMemberKeyWasDeletedJoinsAgainAndProbesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		co, _ := run(t, coord.Config{Name: "a", Backend: b})
		synctest.Wait()
		before, _ := co.Owned()
		deleteMember(t, b, "a")
		for begin := time.Now(); time.Since(begin) < 4*coord.DefaultTTL; time.Sleep(100 * time.Millisecond) {
			if owned, _ := co.Owned(); len(owned) != shard.Count {
				t.Fatalf("after %v it probes %d shards", time.Since(begin), len(owned))
			}
		}
		after, _ := co.Owned()
		if n := withToken(after); n != shard.Count || after[0].Token == before[0].Token || !co.Allowed() {
			t.Errorf("it owns %d shards, and shard 0 by %d after %d; it may act: %v", n, after[0].Token, before[0].Token, co.Allowed())
		}
	})
}
