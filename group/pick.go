package group

import (
	"math/bits"
	"math/rand/v2"
	"slices"
)

// shares are the members of a View that are in rotation, with the running sums of their weights.
type shares struct {
	members []*Member
	upTo    []uint64 // the sum of the weights of a member and of all members before it
}

// goldenRatio is 2^64 divided by the golden ratio. Any number of its consecutive multiples modulo 2^64 are spread evenly.
const goldenRatio = 0x9E3779B97F4A7C15

// Pick returns a member in rotation for one request, or false if no member is in rotation. Each member gets a share of the
// picks proportional to its weight, evenly distributed even over a few consecutive picks. Pick takes no lock. While no
// member's state is known, all members are in rotation.
//
// A failed request can be retried with another member: tried names the targets to exclude. The other members then get their
// shares of such requests at random.
func (g *Group) Pick(tried ...string) (*Member, bool) {
	s := g.View().shares()
	switch {
	case len(s.members) == 0:
		return nil, false
	case len(tried) > 0:
		return s.other(tried)
	}
	at, _ := bits.Mul64(g.picks.Add(1)*goldenRatio, s.upTo[len(s.upTo)-1])
	i, _ := slices.BinarySearch(s.upTo, at+1)
	return s.members[i], true
}

// other returns a member whose target is not in tried.
func (s *shares) other(tried []string) (picked *Member, ok bool) {
	sum := 0
	for _, m := range s.members {
		if slices.Contains(tried, m.Target) {
			continue
		}
		if sum += m.Weight; rand.IntN(sum) < m.Weight {
			picked = m
		}
	}
	return picked, picked != nil
}

// shares returns the shares of a View, which are computed at the first Pick.
func (v *View) shares() *shares {
	v.pickOnce.Do(func() {
		s, sum := &v.picked, uint64(0)
		for m := range v.Members() {
			if m.InRotation {
				sum += uint64(m.Weight)
				s.members, s.upTo = append(s.members, m), append(s.upTo, sum)
			}
		}
	})
	return &v.picked
}
