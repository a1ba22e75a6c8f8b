package coord

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// The abandoned shards are those of an owner that is no member by its lease, after any events.
func TestAbandonedShardsAreThoseOfNoMember(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	names := []string{"a", "b", "c"}
	v := &view{}
	v.reset(nil, time.Second)
	some := 0
	for n := range 5000 {
		name, lease := names[rng.IntN(len(names))], Lease(1+rng.IntN(2))
		e := Event{Entry: Entry{Key: keyMember + name, Value: []byte(member{lease, false}.String())}, Deleted: rng.IntN(2) == 0}
		if rng.IntN(3) > 0 {
			e.Entry = Entry{Key: shardKey(shard.ID(rng.IntN(8))), Value: []byte(owner{name, lease}.String()), Created: Revision(n)}
		}
		v.change([]Event{e})
		want := map[shard.ID]ownedBy{}
		for id, o := range v.owners {
			if m, isMember := v.members[o.name]; !isMember || m.lease != o.lease {
				want[id] = o
			}
		}
		some += len(want)
		if got := v.abandoned(); !maps.Equal(got, want) {
			t.Fatalf("after event %d they are %v, want %v", n, got, want)
		}
	}
	if some == 0 {
		t.Error("none was abandoned")
	}
}
