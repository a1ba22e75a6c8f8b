package quorum_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
)

// fleet returns engines in zones of these sizes.
func fleet(sizes ...int) (all []quorum.Vantage) {
	for zone, n := range sizes {
		for i := range n {
			all = append(all, quorum.Vantage{Name: fmt.Sprintf("engine-%d.zone-%d", i, zone), Zone: fmt.Sprint("zone-", zone)})
		}
	}
	return all
}

// fleets are the fleets for which the laws are checked.
var fleets = [][]quorum.Vantage{
	nil, fleet(1), fleet(2), fleet(5), fleet(1, 1), fleet(3, 1), fleet(1, 1, 1), fleet(4, 4, 4), fleet(9, 1, 1), fleet(2, 2, 2, 2), fleet(7, 5, 3, 1, 1),
}

// choices are the rules for which the laws are checked.
var choices = []quorum.Rule{
	{Vantages: 2, Spread: quorum.SpreadZone}, {Vantages: 3, Spread: quorum.SpreadZone}, {Vantages: 5, Spread: quorum.SpreadZone},
	{Vantages: 2, Spread: quorum.SpreadNone}, {Vantages: 3, Spread: quorum.SpreadNone}, {Vantages: 5, Spread: quorum.SpreadNone},
}

// someShards is a number of shards that is large enough to find rare violations.
const someShards = 128

func TestAsManyVantagesAreChosenAsAreWanted(t *testing.T) {
	for _, live := range fleets {
		for _, r := range choices {
			for id := range shard.ID(someShards) {
				chosen := quorum.Choose(id, r, live)
				if want := min(r.Vantages, len(live)); len(chosen) != want {
					t.Fatalf("%d of %d engines are chosen for %d", len(chosen), len(live), r.Vantages)
				}
				slices.Sort(chosen)
				if len(slices.Compact(slices.Clone(chosen))) != len(chosen) {
					t.Fatalf("one is chosen twice: %v", chosen)
				}
			}
		}
	}
}

// zonesOf returns the number of chosen engines per zone, and the number of all engines per zone.
func zonesOf(chosen []string, live []quorum.Vantage) (has, all map[string]int) {
	has, all = map[string]int{}, map[string]int{}
	for _, v := range live {
		all[v.Zone]++
		if slices.Contains(chosen, v.Name) {
			has[v.Zone]++
		}
	}
	return has, all
}

func TestVantagesAreSpreadOverZonesEvenly(t *testing.T) {
	isUneven := false
	for _, live := range fleets {
		for _, r := range choices {
			for id := range shard.ID(someShards) {
				has, all := zonesOf(quorum.Choose(id, r, live), live)
				for poor := range all {
					for rich := range all {
						isFair := has[rich] <= has[poor]+1 || has[poor] == all[poor]
						isUneven = isUneven || !isFair
						if r.Spread == quorum.SpreadZone && !isFair {
							t.Fatalf("%s has %d of the vantages, and %s %d of its %d", rich, has[rich], poor, has[poor], all[poor])
						}
					}
				}
			}
		}
	}
	if !isUneven {
		t.Error("without a spread the zones are even as well: the test shows nothing")
	}
}

func TestAnEngineThatLeavesIsExchangedForOneOther(t *testing.T) {
	for _, live := range fleets {
		for i, leaver := range live {
			others := slices.Delete(slices.Clone(live), i, i+1)
			for _, r := range choices {
				for id := range shard.ID(someShards) {
					before, after := quorum.Choose(id, r, live), quorum.Choose(id, r, others)
					want := 0
					if slices.Contains(before, leaver.Name) && len(others) >= r.Vantages {
						want = 1
					}
					joined := slices.DeleteFunc(slices.Clone(after), func(name string) bool { return slices.Contains(before, name) })
					if len(joined) != want || slices.Contains(after, leaver.Name) {
						t.Fatalf("%s leaves: from %v to %v", leaver.Name, before, after)
					}
				}
			}
		}
	}
}

func TestTheChoiceDependsOnTheSetOfEnginesOnly(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, live := range fleets[1:] {
		for _, r := range choices {
			for id := range shard.ID(64) {
				shuffled := append(slices.Clone(live), live[random.IntN(len(live))])
				random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
				if before, after := quorum.Choose(id, r, live), quorum.Choose(id, r, shuffled); !slices.Equal(before, after) {
					t.Fatalf("from %v to %v", before, after)
				}
			}
		}
	}
}

func TestEnginesOfAZoneAreChosenForEqualParts(t *testing.T) {
	live := fleet(4, 4, 4)
	for _, r := range choices {
		has := map[string]int{}
		for id := range shard.ID(shard.Count) {
			for _, name := range quorum.Choose(id, r, live) {
				has[name]++
			}
		}
		mean := shard.Count * r.Vantages / len(live)
		for _, v := range live {
			if n := has[v.Name]; n < mean*85/100 || n > mean*115/100 {
				t.Errorf("%+v: %s is a vantage of %d shards, the mean is %d", r, v.Name, n, mean)
			}
		}
	}
}

// The owner of a shard is its first vantage, except where the bound on loads prevents it.
func TestTheOwnerIsMostlyAVantage(t *testing.T) {
	live := fleet(4, 4, 4)
	var names []string
	for _, v := range live {
		names = append(names, v.Name)
	}
	same := 0
	for id, owner := range shard.Assign(names) {
		if quorum.Choose(shard.ID(id), quorum.Rule{}.WithDefaults(), live)[0] == owner {
			same++
		}
	}
	if same < shard.Count*9/10 {
		t.Errorf("of %d of %d shards the owner is the first vantage", same, shard.Count)
	}
}

// Engines of several releases share a fleet.
func TestChoicesNeverChange(t *testing.T) {
	live := []quorum.Vantage{{Name: "a", Zone: "eu"}, {Name: "b", Zone: "eu"}, {Name: "c", Zone: "us"}, {Name: "d", Zone: "us"}, {Name: "e", Zone: "ap"}}
	got := ""
	for id := range shard.ID(4) {
		got += fmt.Sprint(quorum.Choose(id, choices[1], live), quorum.Choose(id, choices[4], live))
	}
	if want := "[d a e] [d a c][c a e] [c a e][d b e] [d b c][e a d] [e a d]"; got != want {
		t.Errorf("chosen are %s, they were %s", got, want)
	}
}
