package group

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sonde-probe/sonde/probe"
)

// letters are the states of members in a table. One in upper case has the weight 0.
var letters = map[rune]probe.GatewayState{'u': probe.GatewayUndecided, 'r': probe.GatewayReady, 'g': probe.GatewayDegraded, 'd': probe.GatewayDraining, 'x': probe.GatewayDown}

// groupOf returns a group whose members have states, in which a later member has been in its
// state for longer.
func groupOf(rule Rule, states string, now time.Time) *Group {
	g := newGroup("g", now)
	g.rule = rule
	for i, letter := range states {
		o := &observed{target: fmt.Sprintf("m%03d", i), state: letters[unicode.ToLower(letter)], since: now.Add(-time.Duration(i) * time.Second)}
		if unicode.IsUpper(letter) {
			o.labels = map[string]string{rule.WeightLabel: "0"}
		}
		g.put(o, nil, now, false)
	}
	g.replan(now, true)
	return g
}

// weights returns the weights of members, with 0 for those that are not in rotation.
func weights(g *Group) string {
	var all []string
	for m := range g.members.current().from("") {
		if m.InRotation != (m.Weight > 0) {
			all = append(all, "contradiction")
		}
		all = append(all, fmt.Sprint(m.Weight))
	}
	return strings.Join(all, " ")
}

func TestWhoIsInRotation(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		states string
		rule   Rule
		want   string
		panics bool
	}{
		{"rrx", Rule{}, "100 100 0", false},
		{"rgd", Rule{}, "100 100 0", false},
		{"rgd", Rule{DegradedWeight: 0.25}, "100 25 0", false},
		{"rg", Rule{DegradedWeight: 0.001, Weight: 7}, "7 1", false},
		{"xxx", Rule{}, "0 0 0", false},
		{"xxx", Rule{Panic: 0.01}, "100 100 100", true},
		{"rxx", Rule{Panic: 0.5, DegradedWeight: 0.5}, "100 100 100", true},
		{"rx", Rule{Panic: 0.5}, "100 0", false}, // half is not less than half
		{"gxx", Rule{Panic: 0.5, DegradedWeight: 0.5}, "100 100 100", true},
		{"rxd", Rule{Panic: 0.6}, "100 100 0", true}, // draining members do not count, and are not used
		{"ddd", Rule{Panic: 1}, "0 0 0", false},
		{"rxxx", Rule{Quorum: 2}, "100 100 0 0", false}, // the second one was the last to go down
		{"rxxd", Rule{Quorum: 2}, "100 0 0 100", false}, // what is draining still works
		{"rxxd", Rule{Quorum: 9}, "100 100 100 100", false},
		{"rrrx", Rule{Quorum: 3}, "100 100 100 0", false},
		{"gxx", Rule{Quorum: 2, DegradedWeight: 0.25}, "100 100 0", false}, // one that is down gets no more than it
		{"ggx", Rule{Quorum: 2, DegradedWeight: 0.25}, "25 25 0", false},
		{"uuu", Rule{}, "100 100 100", false}, // nothing is known
		{"uur", Rule{}, "100 100 100", false}, // not all were decided yet
	} {
		g := groupOf(c.rule, c.states, now)
		before, v := g.publish(now, false, false)
		if got := weights(g); got != c.want || v.Panicking != c.panics {
			t.Errorf("%s by %+v: the weights are %s, want %s; panics: %v", c.states, c.rule, got, c.want, v.Panicking)
		}
		if frozen := strings.Contains(c.states, "u"); v.Frozen != frozen || !before.Frozen {
			t.Errorf("%s: frozen is %v", c.states, v.Frozen)
		}
	}
}

// A member of the weight 0 gets no requests. So it is not one of those that are ready, nor one of
// those of which a share must be, for a gateway and for people.
func TestMembersOfTheWeight0CountForNothing(t *testing.T) {
	now := time.Unix(1000, 0)
	half := probe.Minimum{Share: 0.5}
	for _, c := range []struct {
		states string
		rule   Rule
		want   string
		state  probe.GatewayState
		panics bool
	}{
		{"Rx", Rule{}, "0 0", probe.GatewayDown, false}, // one is ready, and gets no requests
		{"Rx", Rule{Panic: 0.5}, "0 100", probe.GatewayDown, true},
		{"Xr", Rule{Panic: 1}, "0 100", probe.GatewayReady, false}, // all that can be used are ready
		{"XXr", Rule{MinReady: half}, "0 0 100", probe.GatewayReady, false},
		{"RRx", Rule{MinReady: half}, "0 0 0", probe.GatewayDown, false},
		{"Rrx", Rule{Quorum: 2}, "0 100 100", probe.GatewayReady, false},
		{"Rxd", Rule{Quorum: 1}, "0 0 100", probe.GatewayDown, false},
		{"Ur", Rule{}, "0 100", probe.GatewayReady, false}, // the group does not wait for it
		{"RR", Rule{}, "0 0", probe.GatewayDown, false},    // the group is known, and drained
		{"RX", Rule{Panic: 1, Quorum: 2}, "0 0", probe.GatewayDown, false},
		{"Ru", Rule{}, "0 100", probe.GatewayUndecided, false}, // frozen
	} {
		c.rule.WeightLabel = "w"
		g := groupOf(c.rule, c.states, now)
		_, v := g.publish(now, false, false)
		if got := weights(g); got != c.want || v.State != c.state || v.Panicking != c.panics || v.Frozen != (c.state == probe.GatewayUndecided) {
			t.Errorf("%s by %+v: the weights are %s, want %s; %v, panics %v, frozen %v", c.states, c.rule, got, c.want, v.State, v.Panicking, v.Frozen)
		}
		zero := 0
		for m := range v.Members() {
			if m.ZeroWeight {
				zero++
			}
		}
		if zero == 0 || v.ZeroWeight != zero || v.Counts.Total()+zero != len(c.states) {
			t.Errorf("%s: %d have the weight 0, and the view has %d beside %v", c.states, zero, v.ZeroWeight, v.Counts)
		}
	}
}

// The weight of a member is an operator's way to drain it, and to bring it back.
func TestAMemberOfTheWeight0IsNotLost(t *testing.T) {
	now, rule := time.Unix(1000, 0), Rule{WeightLabel: "w", SlowStart: 10 * time.Second}
	g := groupOf(rule, "rru", now)
	put := func(name string, state probe.GatewayState, weight string) {
		o := &observed{target: name, state: state, labels: map[string]string{"w": weight}}
		g.put(o, g.members.get(name), now, false)
		g.replan(now, false)
		g.publish(now, false, false)
	}
	put("m002", probe.GatewayReady, "100")
	for _, c := range []struct{ name, weight, want string }{
		{"m000", "0", "0 100 100"}, {"m001", "0", "0 0 100"}, {"m002", "0", "0 0 0"},
		{"m000", "100", "10 0 0"}, // in rotation anew
	} {
		put(c.name, probe.GatewayReady, c.weight)
		if got := weights(g); got != c.want || g.View().Frozen {
			t.Errorf("%s has the weight %s: the weights are %s, want %s; frozen %v", c.name, c.weight, got, c.want, g.View().Frozen)
		}
	}
}

func TestLabelsHaveWeights(t *testing.T) {
	now, rule := time.Unix(1000, 0), Rule{Weight: 50, WeightLabel: "w"}
	g := groupOf(rule, "", now)
	for i, text := range []string{"", "0", "1", "256", "257", "-1", "x"} {
		g.put(&observed{target: fmt.Sprint(i), state: probe.GatewayReady, labels: map[string]string{"w": text}}, nil, now, false)
	}
	g.replan(now, true)
	if got, want := weights(g), "50 0 1 256 50 50 50"; got != want {
		t.Errorf("the weights are %s, want %s", got, want)
	}
}

// The laws of a rotation hold for any group, rule and time, and a group that has changed step
// by step is the same as one that is decided at once.
func TestLawsOfARotation(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		now := time.Unix(1000, 0)
		rule := Rule{
			WeightLabel: "w", MaxEjected: probe.Share(r.IntN(5)) / 4, Panic: probe.Share([]float64{0, 0.01, 0.5, 1}[r.IntN(4)]), Quorum: r.IntN(4), Weight: r.IntN(probe.MaxWeight + 1),
			DegradedWeight: probe.Share(r.IntN(5)) / 4, SlowStart: time.Duration(r.IntN(2)) * 10 * time.Second,
		}
		g := newGroup("g", now)
		g.rule = rule
		for range 60 {
			now = now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
			name := fmt.Sprintf("m%03d", r.IntN(7))
			if m := g.members.get(name); m != nil && r.IntN(6) == 0 {
				g.drop(name, now)
			} else {
				o := &observed{target: name, state: probe.GatewayState(r.IntN(probe.GatewayStates)), since: now, doubtful: r.IntN(5) == 0}
				o.ejected = o.state == probe.GatewayDown && r.IntN(2) == 0
				if r.IntN(8) == 0 {
					o.labels = map[string]string{"w": "0"}
				}
				g.put(o, m, now, r.IntN(20) == 0)
			}
			before, over := g.view.Load().InRotation, g.wait.over
			kept := g.acting.Serving() - g.wait.joined
			switch g.replan(now, g.slow); {
			case over && g.wait.over && g.wait.lost > 0 && kept == 0 && g.acting[probe.GatewayUndecided] > g.wait.absent && g.acting.Serving() < max(before, 1):
				t.Errorf("%d of %d members replace %d that are lost", g.acting.Serving(), g.acting.Total(), before)
			case over && !g.wait.over && kept > 0 && g.acting.Total() > g.wait.absent:
				t.Errorf("the group waits, and %d members go on", kept)
			}
			checkLaws(t, g, now)
			if r.IntN(2) == 0 {
				g.publish(now, false, false)
			}
			if t.Failed() {
				t.Fatalf("seed %d, rule %+v", seed, rule)
			}
		}
	}
}

func checkLaws(t *testing.T, g *Group, now time.Time) {
	t.Helper()
	var counts, acting Counts
	in, absent, ejected, joined, zero, atOnce := 0, 0, 0, 0, 0, map[string]int{}
	fresh := plan{all: !g.isUsable() || g.rule.panics(g.acting)}
	if !fresh.all {
		fresh.extra = g.rule.fill(g.acting, g.ejected, g.members.current())
	}
	stepped := map[string]int{}
	for m := range g.members.current().from("") {
		if m.ZeroWeight {
			zero++
			if m.serves > 0 || m.InRotation {
				t.Errorf("%+v has the weight 0", *m)
			}
			continue
		}
		counts[m.State]++
		acting[m.acting]++
		if m.absent {
			absent++
		}
		if m.ejected {
			ejected++
		}
		if m.serves == g.nextVersion() {
			joined++
		}
		full := m.full
		_, atOnce[m.Target] = g.rule.place(m, fresh, now)
		if stepped[m.Target] = m.Weight; m.InRotation {
			in++
		}
		switch {
		case m.InRotation != (m.Weight > 0), m.Weight > full:
			t.Errorf("%+v has a weight that cannot be", *m)
		case m.acting.TakesRequests() != (m.serves > 0):
			t.Errorf("%+v takes requests since the view %d", *m, m.serves)
		case m.acting.TakesRequests() && !m.InRotation:
			t.Errorf("%+v takes requests and is not in rotation", *m)
		case m.InRotation && m.Weight < full && (fresh.all || len(fresh.extra) > 0):
			t.Errorf("%+v has less than its weight beside members that take no requests", *m)
		case m.InRotation && !m.acting.TakesRequests() && !fresh.all && !fresh.extra[m.Target]:
			t.Errorf("%+v takes no requests and is in rotation", *m)
		}
	}
	if zero != g.zeroWeight || ejected != g.ejected || counts != g.counts || acting != g.acting || in != g.inRotation || absent != g.wait.absent || joined != g.wait.joined {
		t.Errorf("the counts are %v %v %d %+v, want %v %v %d %d %d", g.counts, g.acting, g.inRotation, g.wait, counts, acting, in, absent, joined)
	}
	if !maps.Equal(stepped, atOnce) {
		t.Errorf("the weights are %v, and at once they are %v", stepped, atOnce)
	}
	if least := min(g.rule.Quorum, acting.Total()); g.isUsable() && !fresh.all && in < least {
		t.Errorf("%d are in rotation, fewer than the quorum %d", in, least)
	}
}

func TestWhatIsNotKnownChangesNothing(t *testing.T) {
	for _, before := range []probe.GatewayState{probe.GatewayUndecided, probe.GatewayReady, probe.GatewayDegraded, probe.GatewayDraining, probe.GatewayDown} {
		for _, now := range []probe.GatewayState{probe.GatewayUndecided, probe.GatewayReady, probe.GatewayDegraded, probe.GatewayDraining, probe.GatewayDown} {
			if got := actingState(before, now, false, true); got != before {
				t.Errorf("isolated, %v after %v is taken for %v", now, before, got)
			}
			want := now
			if now == probe.GatewayUndecided {
				want = before
			}
			if got := actingState(before, now, false, false); got != want {
				t.Errorf("%v after %v is taken for %v", now, before, got)
			}
			if now == probe.GatewayDown {
				want = before
			}
			if got := actingState(before, now, true, false); got != want {
				t.Errorf("doubtful, %v after %v is taken for %v", now, before, got)
			}
		}
	}
}

func TestASlowStartGrowsInSteps(t *testing.T) {
	began := time.Unix(1000, 0)
	seen, last := map[float64]bool{}, 0.0
	for at := -time.Second; at < 25*time.Second; at += 10 * time.Millisecond {
		share := slowShare(began, began.Add(at), 20*time.Second)
		if seen[share] = true; share < last || share <= 0 || share > 1 {
			t.Fatalf("after %v the share is %v, after %v", at, share, last)
		}
		last = share
	}
	if steps := slices.Sorted(maps.Keys(seen)); len(steps) != slowSteps || steps[0] != 0.1 || last != 1 {
		t.Errorf("the steps are %v", steps)
	}
	if slowShare(time.Time{}, began, time.Minute) != 1 || slowShare(began, began, 0) != 1 {
		t.Error("a member without a slow start does not have its full weight")
	}
}

// Each member gets its share, and the share of any run of picks is near it: by chance alone
// the runs would differ by several times as much.
// A member in its slow start has its full weight beside one that is down, which would get most of the
// requests otherwise.
func TestASlowStartPausesBesideMembersThatAreDown(t *testing.T) {
	for _, c := range []struct {
		rule       Rule
		down, well string
	}{
		{Rule{}, "0 0 10", "0 10 10"},
		{Rule{Quorum: 2}, "0 100 100", "0 100 10"}, // it was in rotation all the time
		{Rule{Panic: 0.5}, "100 100 100", "0 100 10"},
	} {
		now := time.Unix(1000, 0)
		c.rule.SlowStart = 10 * time.Second
		g := groupOf(c.rule, "rr", now)
		g.publish(now, false, false)
		change := func(name string, state probe.GatewayState) {
			now = now.Add(time.Millisecond)
			g.put(&observed{target: name, state: state, since: now}, g.members.get(name), now, false)
			g.replan(now, g.slow)
			g.publish(now, false, false)
			checkLaws(t, g, now)
		}
		change("m002", probe.GatewayReady)
		change("m000", probe.GatewayDown)
		change("m001", probe.GatewayDown)
		if got := weights(g); got != c.down {
			t.Errorf("by %+v the weights are %s, want %s", c.rule, got, c.down)
		}
		change("m001", probe.GatewayReady)
		if got := weights(g); got != c.well {
			t.Errorf("by %+v the weights are %s after one is ready again, want %s", c.rule, got, c.well)
		}
	}
}

func TestPicksAreFair(t *testing.T) {
	now := time.Unix(1000, 0)
	g := groupOf(Rule{WeightLabel: "w"}, "x", now)
	var sum float64
	for i, text := range []string{"1", "10", "25", "100", "256", "0"} {
		m := &observed{target: "w" + text, state: probe.GatewayReady, labels: map[string]string{"w": text}}
		g.put(m, nil, now, false)
		sum += []float64{1, 10, 25, 100, 256, 0}[i]
	}
	g.replan(now, true)
	g.publish(now, false, false)
	for _, run := range []int{50, 1000, 100_000} {
		got := map[string]float64{}
		for range run {
			m, ok := g.Pick()
			if !ok {
				t.Fatal("there is no member")
			}
			got[m.Target]++
		}
		for _, weight := range []float64{1, 10, 25, 100, 256} {
			want := float64(run) * weight / sum
			if n := got[fmt.Sprintf("w%v", weight)]; math.Abs(n-want) > 2+math.Log2(float64(run))/4 {
				t.Errorf("of %d picks the member with the weight %v got %v, want %v", run, weight, n, want)
			}
		}
		if got["m000"]+got["w0"] > 0 {
			t.Errorf("members that are not in rotation were picked: %v", got)
		}
	}
}

func TestThereMayBeNoneToPick(t *testing.T) {
	now := time.Unix(1000, 0)
	g := groupOf(Rule{}, "xd", now)
	g.publish(now, false, false)
	if m, ok := g.Pick(); ok {
		t.Errorf("%+v was picked", *m)
	}
	g = newGroup("empty", now)
	if m, ok := g.Pick(); ok {
		t.Errorf("%+v was picked of no members", *m)
	}
}

// A request that fails everywhere reaches each member that is in rotation once, and those of one
// member that fails are spread over all others.
func TestPickLeavesOutWhatWasTried(t *testing.T) {
	now := time.Unix(1000, 0)
	g := groupOf(Rule{}, "rrrx", now)
	g.publish(now, false, false)
	second := map[string]int{}
	for range 3000 {
		var tried []string
		for m, ok := g.Pick(tried...); ok; m, ok = g.Pick(tried...) {
			if slices.Contains(tried, m.Target) || !m.InRotation || len(tried) > 3 {
				t.Fatalf("%+v was picked after %v", *m, tried)
			}
			tried = append(tried, m.Target)
		}
		if len(tried) != 3 {
			t.Fatalf("only %v were picked", tried)
		}
		second[tried[0]+tried[1]]++
	}
	if len(second) != 6 {
		t.Errorf("the second ones after the first ones were %v", second)
	}
	for both, n := range second {
		if n < 250 {
			t.Errorf("%s: %d of 3000 requests", both, n)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	now := time.Unix(1000, 0)
	g := groupOf(Rule{}, strings.Repeat("r", 100), now)
	g.publish(now, false, false)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, ok := g.Pick(); !ok {
				b.Fatal("there is no member")
			}
		}
	})
}
