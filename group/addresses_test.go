package group

import (
	"fmt"
	"slices"
	"testing"
)

func TestMembersAreFoundByAddress(t *testing.T) {
	var v View
	all := []*Member{
		{Target: "a", Address: "10.0.0.7", Port: 80},
		{Target: "b", Address: "10.0.0.7", Port: 81},
		{Target: "c", Address: "fd00::7", Port: 80},
		{Target: "d", Address: "shop.example"},
		{Target: "e"},
		{Target: "f", Address: "10.0.0.7", Port: 80},
		{Target: "g", Port: 80},
	}
	v.members = members{chunks: [][]*Member{all}}
	for address, want := range map[string][]string{
		"10.0.0.7": {"a", "b", "f"}, "10.0.0.7:80": {"a", "f"}, "10.0.0.7:81": {"b"}, "10.0.0.7:82": nil,
		"fd00::7": {"c"}, "[fd00::7]:80": {"c"}, "[fd00::7]": nil, "fd00::7:80": nil,
		"shop.example": {"d"}, "shop.example:80": nil, "": nil, ":80": nil, "a": nil, "10.0.0.8": nil,
	} {
		var got []string
		for _, m := range v.MembersAt(address) {
			got = append(got, m.Target)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q has %q, want %q", address, got, want)
		}
	}
}

// Agent checks by address ask about each server several times a second.
func BenchmarkMembersAt(b *testing.B) {
	var v View
	chunk := make([]*Member, 2000)
	for i := range chunk {
		chunk[i] = &Member{Target: fmt.Sprint(i), Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250), Port: 80}
	}
	v.members = members{chunks: [][]*Member{chunk}}
	for b.Loop() {
		if len(v.MembersAt("10.0.7.249:80")) != 1 {
			b.Fatal("not found")
		}
	}
}
