// Package shard divides targets into shards, and shards among the engines of a fleet. It has only pure functions: all
// engines compute the same results without communicating.
//
// The results must never change, since engines of several releases share a fleet.
package shard

import (
	"fmt"
	"slices"
)

// ID is the number of a shard, less than Count.
type ID uint16

// Count is the number of shards. With 4,096 of them the shares of 64 engines differ by a few percent, and a key per
// shard is still little for a store.
const Count = 4096

// String returns the number with four digits, so that the text order is the numeric order.
func (id ID) String() string { return fmt.Sprintf("%04d", uint16(id)) }

// Of returns the shard of a target, by its name.
func Of(target string) ID { return ID(mix(fnv(target)) % Count) }

// Assign returns the member to which each shard is assigned, or "" if there are no members. The order of members and
// duplicates do not matter.
//
// This is rendezvous hashing with bounded loads: each shard, in numeric order, goes to the member with the highest score
// for it that has capacity left. A member that joins or leaves moves its own shards and a few that exceed the capacity
// of others: up to an additional 10 % of its share in a fleet of 12, and up to half of its share in a fleet of 64, where
// more members reach the bound.
func Assign(members []string) *[Count]string {
	return AssignExcept(members, nil)
}

// AssignExcept is Assign for members some of which lack targets of shards; lacks has them by member name. Such a shard
// goes to a member that has all its targets, regardless of capacity, unless all members lack some. A shard that nobody
// lacks stays where Assign assigns it, except for a few for which the members have no capacity left.
func AssignExcept(members []string, lacks map[string]func(ID) bool) *[Count]string {
	members = slices.Compact(slices.Sorted(slices.Values(members)))
	assigned := new([Count]string)
	if len(members) == 0 {
		return assigned
	}
	n := len(members)
	hashes, room, lacking := make([]uint64, n), make([]int, n), make([]func(ID) bool, n)
	for i, m := range members {
		lacking[i], hashes[i], room[i] = lacks[m], fnv(m), (Count*105+n*100-1)/(n*100) // 5 % more than the mean, rounded up
	}
	for id := range assigned {
		var best rank
		at := 0
		for i := range members {
			if r := (rank{lacking[i] == nil || !lacking[i](ID(id)), room[i] > 0, ID(id).score(hashes[i])}); i == 0 || r.isHigherThan(best) {
				best, at = r, i
			}
		}
		room[at]--
		assigned[id] = members[at]
	}
	return assigned
}

// rank is how strongly a member is preferred for a shard.
type rank struct {
	isComplete, hasRoom bool
	score               uint64
}

func (r rank) isHigherThan(s rank) bool {
	switch {
	case r.isComplete != s.isComplete:
		return r.isComplete
	case r.hasRoom != s.hasRoom:
		return r.hasRoom
	}
	return r.score > s.score
}

// Score returns the rendezvous-hashing score of a member for a shard; for each shard, the scores of members are
// pseudorandom. Without the bound on loads, Assign would assign a shard to the member with the highest score.
func (id ID) Score(member string) uint64 { return id.score(fnv(member)) }

func (id ID) score(member uint64) uint64 { return mix(member ^ mix(uint64(id))) }

// fnv returns the FNV-1a hash of a text.
func fnv(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

// mix spreads each bit over all others, which FNV does not do for texts that differ only at the end. It is the finalizer
// of MurmurHash3.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
