package quorum

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// Vantage is an engine that targets can be probed from.
type Vantage struct {
	Name string // of the engine
	Zone string // where it is, at most MaxZone bytes; engines without a zone share one
}

// MaxZone bounds Vantage.Zone, in bytes.
const MaxZone = 63

// candidate is a vantage that may be chosen for a shard.
type candidate struct {
	Vantage
	score uint64 // of rendezvous hashing
	rank  int    // how many of its zone have a higher score
}

// Choose returns the names of the vantages from which the targets of a shard are probed: as many as the
// rule wants, or all if there are fewer. The first is preferred most. Neither the order of live nor its
// repetition matters; all engines compute the same without asking each other.
//
// It is rendezvous hashing: one that joins or leaves is exchanged for at most one other, and moves nothing if
// it is not chosen itself. With SpreadZone the best of each zone come first, then the second best of each,
// and so on: if there are fewer zones than vantages are wanted, their numbers differ by one at most, but for
// zones that have no more.
//
// What it returns must never change, as that of package shard.
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
