package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// floorOf returns the View of a group with HoldRestarts whose members have states, as in groupOf.
func floorOf(t *testing.T, min, states string) *View {
	t.Helper()
	r := Rule{HoldRestarts: true, WeightLabel: "weight"}
	if err := r.MinReady.UnmarshalText([]byte(min)); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	g := groupOf(r, strings.ReplaceAll(states, "s", "u"), now)
	for i, letter := range states {
		if letter == 's' { // undecided, and started
			o := &observed{target: fmt.Sprintf("m%03d", i), since: now, started: true}
			g.put(o, g.members.get(o.target), now, false)
		}
	}
	_, v := g.publish(now, false, false)
	return v
}

// set returns the names of members by their numbers.
func set(numbers ...int) map[string]bool {
	names := map[string]bool{}
	for _, n := range numbers {
		names[fmt.Sprintf("m%03d", n)] = true
	}
	return names
}

func TestWhichRestartsAGroupWithholds(t *testing.T) {
	for _, c := range []struct {
		states, min string
		reserved    map[string]bool
		want        string // of the members whose restart is withheld, the numbers
	}{
		{"rrr", "2", nil, ""},
		{"rrr", "3", nil, "0 1 2"},
		{"rrx", "2", nil, "0 1"},        // who takes no requests takes nothing away
		{"rru", "2", nil, "0 1"},        // an undecided member is not known to be ready
		{"rrd", "2", nil, "0 1"},        // nor is one that drains
		{"rgg", "2", nil, ""},           // degraded members take requests
		{"rrr", "2", set(0), "1 2"},     // another one is being restarted
		{"rrrr", "2", set(0), ""},       // which leaves room for this one
		{"rrrr", "2", set(0, 1), "2 3"}, // a reserved one may be restarted again
		{"rrrx", "2", set(3), ""},       // it takes no requests anyway
		{"rrrr", "50%", set(0, 1), "2 3"},
		{"rrr", "50%", nil, ""}, // 1.5 is rounded up to 2
		{"rrr", "50%", set(0), "1 2"},
		{"rrR", "2", nil, "0 1"}, // the weight 0 counts for nothing, and gets no requests
		{"rrrR", "2", set(3), ""},
		{"r", "1", nil, "0"},
		{"s", "1", nil, "0"}, // nothing is known of an instance that has started: it may take requests
		{"u", "1", nil, ""},
		{"rrs", "2", nil, "0 1"},
		{"x", "1", nil, ""},
		{"xxx", "3", nil, ""},
	} {
		v, withheld := floorOf(t, c.min, c.states), []string{}
		for m := range v.Members() {
			if v.withholds(m.Target, c.reserved) {
				withheld = append(withheld, m.Target[3:]) // of fewer than ten
			}
		}
		if got := strings.Join(withheld, " "); got != c.want {
			t.Errorf("%s with %s ready, %v reserved: withheld %q, want %q", c.states, c.min, slices.Sorted(maps.Keys(c.reserved)), got, c.want)
		}
		v.Rule.HoldRestarts = false
		for m := range v.Members() {
			if v.withholds(m.Target, c.reserved) {
				t.Errorf("%s: a group without hold_restarts withholds the restart of %s", c.states, m.Target)
			}
		}
	}
}

// A member whose failure the engine doubts, or of which nothing is known any more, still gets requests.
func TestTheRestartOfAMemberThatGetsRequestsIsWithheld(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, next := range map[string]*observed{"doubtful": {state: probe.GatewayDown, doubtful: true}, "undecided": {state: probe.GatewayUndecided}} {
		g := groupOf(Rule{HoldRestarts: true}, "rx", now)
		next.target = "m000"
		g.put(next, g.members.get("m000"), now, false)
		_, v := g.publish(now, false, false)
		if !v.withholds("m000", nil) {
			t.Errorf("%s: not withheld", name)
		}
	}
}

func TestLawsOfAFloor(t *testing.T) {
	tier.Slow(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var states strings.Builder
		for range 1 + r.IntN(12) {
			letter := rune("rrrrgdxu"[r.IntN(8)])
			if r.IntN(10) == 0 {
				letter = unicode.ToUpper(letter)
			}
			states.WriteRune(letter)
		}
		min := fmt.Sprint(1 + r.IntN(12))
		if r.IntN(2) == 0 {
			min = fmt.Sprintf("%d%%", 1+r.IntN(100))
		}
		checkFloor(t, r, floorOf(t, min, states.String()), states.String()+" "+min)
	}
}

// checkFloor restarts members in any order as long as the group allows it, and checks what is left.
func checkFloor(t *testing.T, r *rand.Rand, v *View, name string) {
	t.Helper()
	all, reserved := []*Member{}, map[string]bool{}
	for m := range v.Members() {
		all = append(all, m)
	}
	left := func() (n int) {
		for _, m := range all {
			if m.State.TakesRequests() && !m.ZeroWeight && !reserved[m.Target] {
				n++
			}
		}
		return n
	}
	refused := map[string]bool{}
	for range 3 * len(all) {
		m := all[r.IntN(len(all))]
		serves, before := m.State.TakesRequests() && !m.ZeroWeight, left()
		if v.withholds(m.Target, reserved) {
			refused[m.Target] = true
			if !serves || before-one(!reserved[m.Target]) >= v.Need {
				t.Fatalf("%s: the restart of %s is withheld, %v are reserved", name, m.Target, reserved)
			}
			continue
		}
		if refused[m.Target] {
			t.Fatalf("%s: the restart of %s is allowed once more are reserved: %v", name, m.Target, reserved)
		}
		reserved[m.Target] = true
		if serves && left() < v.Need {
			t.Fatalf("%s: %d are left without %v", name, left(), reserved)
		}
	}
	for _, m := range all {
		if m.State.TakesRequests() && !m.ZeroWeight && !reserved[m.Target] && left()-1 >= v.Need && refused[m.Target] {
			t.Fatalf("%s: %s could be restarted", name, m.Target)
		}
	}
}
