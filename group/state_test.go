package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

func TestAGroupIsReadyWhenEnoughMembersAre(t *testing.T) {
	for _, c := range []struct {
		undecided, ready, down int
		min                    string
		want                   probe.GatewayState
	}{
		{0, 3, 1, "2", probe.GatewayReady},
		{0, 2, 2, "2", probe.GatewayReady},
		{0, 1, 3, "2", probe.GatewayDown},
		{0, 2, 2, "50%", probe.GatewayReady},
		{0, 1, 2, "50%", probe.GatewayDown}, // 50% of 3 is 2
		{0, 4, 0, "100%", probe.GatewayReady},
		{0, 3, 1, "100%", probe.GatewayDown},
		{4, 0, 0, "2", probe.GatewayUndecided},
		{1, 1, 2, "2", probe.GatewayUndecided},
		{1, 0, 3, "2", probe.GatewayDown}, // even if the last one becomes ready
		{1, 2, 1, "2", probe.GatewayReady},
		{0, 1, 0, "3", probe.GatewayDown}, // it can never be ready
		{0, 0, 0, "1", probe.GatewayUndecided},
		{0, 0, 0, "50%", probe.GatewayUndecided},
	} {
		var min probe.Minimum
		if err := min.UnmarshalText([]byte(c.min)); err != nil {
			t.Fatal(err)
		}
		counts := Counts{probe.GatewayUndecided: c.undecided, probe.GatewayReady: c.ready, probe.GatewayDown: c.down}
		if got := decide(counts, 0, min.Of(counts.Total())); got != c.want {
			t.Errorf("%+v is %v", c, got)
		}
	}
}

// Undecided members decide nothing, and hide nothing: a group is decided if and only if
// its state is the same whatever becomes of them.
func TestAGroupIsDecidedIfItsUndecidedMembersDoNotMatter(t *testing.T) {
	const most = 6
	for undecided := range most {
		for ready := range most {
			for down := range most {
				for need := 1; need < 3*most; need++ {
					got := decide(Counts{probe.GatewayUndecided: undecided, probe.GatewayReady: ready, probe.GatewayDown: down}, 0, need)
					var ends []probe.GatewayState
					for become := range undecided + 1 {
						ends = append(ends, decide(Counts{probe.GatewayReady: ready + become, probe.GatewayDown: down + undecided - become}, 0, need))
					}
					ends = slices.Compact(ends)
					if want := probe.GatewayUndecided; len(ends) == 1 && ends[0] != got || len(ends) > 1 && got != want {
						t.Fatalf("%d undecided, %d ready, %d down, %d needed: %v, but it may become %v", undecided, ready, down, need, got, ends)
					}
				}
			}
		}
	}
}

// TestAListOfMembersNeverChanges compares lists with maps, and looks at the lists again at
// the end.
func TestAListOfMembersNeverChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	model, list := map[string]*Member{}, members{}
	type version struct {
		list members
		text string
	}
	var versions []version
	for step := range 400 {
		changes := map[string]*Member{}
		for range 1 + r.IntN(1+step%17*(step%17)*(step%17)) {
			name := fmt.Sprintf("t%04d", r.IntN(3000))
			if _, changed := changes[name]; !changed && list.get(name) != model[name] {
				t.Fatalf("step %d: %s is not what it should be", step, name)
			}
			if changes[name] = nil; r.IntN(3) != 0 {
				changes[name] = &Member{Target: name}
			}
		}
		list = list.with(changes)
		maps.Copy(model, changes)
		maps.DeleteFunc(model, func(_ string, m *Member) bool { return m == nil })
		for _, c := range list.chunks {
			if len(c) == 0 || len(c) > maxChunk {
				t.Fatalf("step %d: there is a chunk of %d", step, len(c))
			}
		}
		if step%20 == 0 {
			versions = append(versions, version{list, text(list)})
			if want := sorted(model); text(list) != want {
				t.Fatalf("step %d: the list is\n%s\nwant\n%s", step, text(list), want)
			}
		}
	}
	for i, v := range versions {
		if text(v.list) != v.text {
			t.Errorf("version %d has changed", i)
		}
	}
	for name := range model {
		list = list.with(map[string]*Member{name: nil})
	}
	if len(list.chunks) != 0 {
		t.Errorf("%d chunks are left", len(list.chunks))
	}
}

func text(l members) string {
	var s strings.Builder
	for m := range l.from("") {
		s.WriteString(m.Target + " ")
	}
	return s.String()
}

func sorted(model map[string]*Member) string {
	var all []string
	for name := range model {
		all = append(all, name+" ")
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

func TestMembersAreYieldedAfterAName(t *testing.T) {
	list := members{}
	for i := range 1000 {
		m := &Member{Target: fmt.Sprintf("t%03d", i)}
		list = list.with(map[string]*Member{m.Target: m})
	}
	for after, want := range map[string]string{"": "t000", "t123": "t124", "t123x": "t124", "t255": "t256", "t999": ""} {
		got := ""
		for m := range list.from(after) {
			got = m.Target
			break
		}
		if got != want {
			t.Errorf("after %q comes %q, want %q", after, got, want)
		}
	}
}
