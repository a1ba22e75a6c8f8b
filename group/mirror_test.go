package group_test

import (
	"slices"
	"testing"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

func TestAMirrorShowsWhatItIsGiven(t *testing.T) {
	m := group.NewMirror("web")
	g := m.Group
	first := g.View()
	if first.Group != "web" || !first.Frozen || first.Counts.Total() != 0 {
		t.Errorf("the first view is %+v", first)
	}
	if _, ok := g.Pick(); ok {
		t.Error("a member was picked, and there is none")
	}
	m.Publish(&group.View{Version: first.Version + 1_000, State: probe.GatewayReady, Last: probe.GatewayReady, Need: 1}, []*group.Member{
		{Target: "c", State: probe.GatewayDown},
		{Target: "d", State: probe.GatewayReady, ZeroWeight: true},
		{Target: "b", State: probe.GatewayReady, InRotation: true, Weight: 100},
		{Target: "a", State: probe.GatewayDegraded, InRotation: true, Weight: 25},
	})
	v, err := g.Next(t.Context(), first.Version)
	if err != nil || v.Version != first.Version+1_000 || v.Group != "web" || v.Frozen || v.InRotation != 2 || v.Counts.Serving() != 2 || v.Counts.Total() != 3 || v.ZeroWeight != 1 || v.Total() != 4 {
		t.Errorf("the next view is %+v, %v", v, err)
	}
	var names []string
	for member := range v.MembersAfter("a") {
		names = append(names, member.Target)
	}
	if !slices.Equal(names, []string{"b", "c", "d"}) || v.Member("c").State != probe.GatewayDown {
		t.Errorf("the members after a are %v", names)
	}
	picked := map[string]int{}
	for range 125 {
		if member, ok := g.Pick(); ok {
			picked[member.Target]++
		}
	}
	if len(picked) != 2 || picked["a"] < 24 || picked["a"] > 26 {
		t.Errorf("picked were %v", picked)
	}
	m.Publish(&group.View{Version: 7}, nil) // of an engine whose clock was set back
	if next, err := g.Next(t.Context(), v.Version); err != nil || next.Version != v.Version+1 || next.Counts.Total() != 0 {
		t.Errorf("the last view is %+v, %v", next, err)
	}
}
