package quorum

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// Vantage is an engine that can probe targets.
type Vantage struct {
	Name string // of the engine
	Zone string // of at most MaxZone bytes; engines without a zone count as one zone
}

// MaxZone bounds Vantage.Zone, in bytes.
const MaxZone = 63

// candidate is a vantage that may be chosen for a shard.
type candidate struct {
	Vantage
	score uint64 // of rendezvous hashing
	rank  int    // how many candidates of its zone have a higher score
}

// Choose returns the names of the vantages that probe the targets of a shard: the number that the rule demands, or all
// if there are fewer. The first one is the most preferred. The order of live and duplicates in it do not matter; all
// engines compute the same result without communicating.
//
// It uses rendezvous hashing: an engine that joins or leaves replaces at most one other, and changes nothing if it is
// not chosen itself. With SpreadZone the best of each zone come first, then the second best of each, and so on: if there
// are fewer zones than vantages, the numbers of vantages per zone differ by at most one, except for zones that have no
// more.
//
// The result must never change between releases, as with package shard.
func Choose(id shard.ID, r Rule, live []Vantage) []string {
	candidates := make([]candidate, 0, len(live))
	for _, v := range live {
		candidates = append(candidates, candidate{Vantage: v, score: id.Score(v.Name)})
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.score, a.score), strings.Compare(a.Name, b.Name), strings.Compare(a.Zone, b.Zone))
	})
	candidates = slices.CompactFunc(candidates, func(a, b candidate) bool { return a.Name == b.Name })
	if r.Spread == SpreadZone {
		inZone := map[string]int{}
		for i, c := range candidates {
			candidates[i].rank = inZone[c.Zone]
			inZone[c.Zone]++
		}
		slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.rank, b.rank) })
	}
	chosen := make([]string, 0, r.Vantages)
	for _, c := range candidates[:min(r.Vantages, len(candidates))] {
		chosen = append(chosen, c.Name)
	}
	return chosen
}
