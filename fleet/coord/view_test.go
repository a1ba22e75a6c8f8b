package coord

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// The shards of an owner that is no member by its lease are not probed, after any events.
func TestShardsOfNoMemberAreNotProbed(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	names := []string{"a", "b", "c"}
	v := &view{}
	v.reset(nil, time.Second)
	some := 0
	for n := range 500 {
		name, lease := names[rng.IntN(len(names))], Lease(1+rng.IntN(2))
		e := Event{Entry: Entry{Key: keyMember + name, Value: []byte(member{lease, false}.String())}, Deleted: rng.IntN(2) == 0}
		if rng.IntN(3) > 0 {
			e.Entry = Entry{Key: shardKey(shard.ID(rng.IntN(8))), Value: []byte(owner{name, lease}.String()), Created: Revision(n)}
		}
		v.change([]Event{e})
		want := map[shard.ID]holder{}
		for id, o := range v.owners {
			if m, isMember := v.members[o.name]; len(v.members) > 0 && (!isMember || m.lease != o.lease) {
				want[id] = holder{shardKey(id), o.name}
			}
		}
		some += len(want)
		got := v.unprobed("")
		maps.DeleteFunc(got, func(id shard.ID, _ holder) bool { _, isOwned := v.owners[id]; return !isOwned })
		if !maps.Equal(got, want) {
			t.Fatalf("after event %d they are %v, want %v", n, got, want)
		}
	}
	if some == 0 {
		t.Error("all were probed")
	}
}
