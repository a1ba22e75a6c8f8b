package shard_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// engines returns the names of n members.
func engines(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("engine-%d.example", i)
	}
	return names
}

// sizes are the numbers of members for which the laws are checked.
var sizes = []int{1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 48, 64}

func TestNoMemberHasMuchMoreThanTheMean(t *testing.T) {
	for _, n := range append(slices.Clone(sizes), 128, 400) {
		members := engines(n)
		has := map[string]int{}
		for id, m := range shard.Assign(members) {
			if m == "" {
				t.Fatalf("with %d members, shard %v is assigned to none", n, shard.ID(id))
			}
			has[m]++
		}
		for _, m := range members {
			if mean := float64(shard.Count) / float64(n); float64(has[m]) > 1.05*mean+1 || has[m] == 0 {
				t.Errorf("with %d members, %s has %d shards, the mean is %.1f", n, m, has[m], mean)
			}
		}
	}
}

// moved counts the shards whose members differ.
func moved(before, after *[shard.Count]string) (n int) {
	for id, m := range before {
		if after[id] != m {
			n++
		}
	}
	return n
}

func TestAMemberThatJoinsOrLeavesMovesLittleMoreThanItsShare(t *testing.T) {
	for _, n := range sizes[1:] {
		limit := 1.1
		if n > 12 {
			limit = 1.5
		}
		members, share := engines(n), float64(shard.Count)/float64(n)
		all := shard.Assign(members)
		for i, m := range members[:min(n, 16)] {
			own := 0
			for _, assigned := range all {
				if assigned == m {
					own++
				}
			}
			others := slices.Delete(slices.Clone(members), i, i+1)
			if n := moved(shard.Assign(others), all); float64(n) > limit*max(float64(own), share) {
				t.Errorf("%s joins %d others, or leaves them: %d shards move, %d are its own", m, len(others), n, own)
			}
		}
	}
}

func TestTheAssignmentDependsOnTheSetOfMembersOnly(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range sizes {
		members := engines(n)
		want := shard.Assign(members)
		for range 3 {
			shuffled := append(slices.Clone(members), members[random.IntN(n)])
			random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			if *shard.Assign(shuffled) != *want {
				t.Fatalf("the order of %d members matters", n)
			}
		}
	}
	if *shard.Assign(nil) != ([shard.Count]string{}) {
		t.Error("without members, a shard is assigned")
	}
}

// Half of the members lack targets of some shards, and one of them lacks targets of some more.
func TestAShardGoesToAMemberThatLacksNothingThere(t *testing.T) {
	for _, n := range sizes[1:] {
		members := engines(n)
		isLacked := func(id shard.ID) bool { return id%50 == 7 }
		lacks := map[string]func(shard.ID) bool{members[0]: func(id shard.ID) bool { return isLacked(id) || id%50 == 8 }}
		for _, m := range members[1 : n-n/2] {
			lacks[m] = isLacked
		}
		before, after := shard.Assign(members), shard.AssignExcept(members, lacks)
		strayed := 0
		for i := range after {
			id := shard.ID(i)
			if of := lacks[after[i]]; of != nil && of(id) {
				t.Errorf("of %d members, %s is assigned shard %v, of which it lacks targets", n, after[i], id)
			}
			if id%50 != 7 && id%50 != 8 && before[i] != after[i] {
				strayed++
			}
		}
		if strayed > shard.Count/10 {
			t.Errorf("of %d members, %d shards move of which nobody lacks targets", n, strayed)
		}
		for _, m := range members {
			lacks[m] = isLacked
		}
		if *shard.AssignExcept(members, lacks) != *before {
			t.Errorf("of %d members, a shard of which all lack targets is not assigned as others are", n)
		}
	}
}

// Engines of several releases share a fleet.
func TestHashesNeverChange(t *testing.T) {
	for target, want := range map[string]shard.ID{"": 2342, "shop/web": 3565, "worker-000001": 3952, "worker-000002": 1067} {
		if got := shard.Of(target); got != want {
			t.Errorf("%q is of shard %v, it was %v", target, got, want)
		}
	}
	assigned := shard.Assign([]string{"a", "b", "c"})
	if got, want := fmt.Sprint(assigned[:12]), "[a c b a a c c c a b b a]"; got != want {
		t.Errorf("assigned to %s, it was %s", got, want)
	}
}

func TestTargetsAreSpreadEvenly(t *testing.T) {
	const perShard = 100
	var has [shard.Count]int
	for i := range perShard * shard.Count {
		has[shard.Of(fmt.Sprintf("shop/web-%d", i))]++
	}
	for id, n := range has { // six standard deviations
		if n < perShard-60 || n > perShard+60 {
			t.Errorf("shard %v has %d of %d targets", shard.ID(id), n, perShard*shard.Count)
		}
	}
}

func BenchmarkAssign(b *testing.B) {
	for _, n := range []int{4, 64, 400} {
		members := engines(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				shard.Assign(members)
			}
		})
	}
}
