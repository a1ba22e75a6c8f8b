package group

import (
	"cmp"
	"slices"
	"time"
)

// Mirror is a Group whose Views come from another process, for example from an engine that is followed over its API.
type Mirror struct{ Group *Group }

// NewMirror returns a Mirror. Until Publish is called, its View is Frozen and has no members.
func NewMirror(name string) *Mirror { return &Mirror{newGroup(name, time.Now())} }

// Publish makes v with the given members the current View. It sets the fields that it derives from the group and the
// members: Group, Counts, ZeroWeight, InRotation and Version. If v.Version would not exceed that of the previous View,
// the next version is used. The caller must not change v or the members afterwards. Members need unique names. Publish
// must not be called concurrently.
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
