package group

import (
	"cmp"
	"slices"
	"time"
)

// Mirror is a Group whose Views are those of another process, such as of an engine that is
// followed over its API.
type Mirror struct{ Group *Group }

// NewMirror returns a Mirror. Until Publish is called its View is Frozen, and has no members.
func NewMirror(name string) *Mirror { return &Mirror{newGroup(name, time.Now())} }

// Publish makes v, with some members, the present View. It sets what follows from the group and
// the members: Group, Counts, ZeroWeight and InRotation, and a Version that is that of v or, if it would not
// grow by that, the next one. The caller must not change v or the members afterwards. Members
// need different names. Publish is called by one goroutine at a time.
func (m *Mirror) Publish(v *View, all []*Member) {
	before := m.Group.view.Load()
	all = slices.SortedFunc(slices.Values(all), func(a, b *Member) int { return cmp.Compare(a.Target, b.Target) })
	v.Group, v.Version = before.Group, max(v.Version, before.Version+1)
	v.Counts, v.ZeroWeight, v.InRotation = Counts{}, 0, 0
	for _, member := range all {
		if member.ZeroWeight {
			v.ZeroWeight++
		} else {
			v.Counts[member.State]++
		}
		if member.InRotation {
			v.InRotation++
		}
	}
	v.members, v.replaced = members{appendChunks(nil, all)}, make(chan struct{})
	m.Group.view.Store(v)
	close(before.replaced)
}
