package group

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// ejectedGroup returns a group as groupOf does, in which e stands for a member that is ejected.
func ejectedGroup(rule Rule, states string, now time.Time) *Group {
	g := groupOf(rule, strings.ReplaceAll(states, "e", "r"), now)
	for i, letter := range states {
		if letter == 'e' {
			name := fmt.Sprintf("m%03d", i)
			g.put(&observed{target: name, state: probe.GatewayDown, ejected: true, since: now.Add(-time.Duration(i) * time.Second)}, g.members.get(name), now, false)
		}
	}
	g.replan(now, false)
	return g
}

func TestEjectionsTakeOutAShareOfTheMembersAtMost(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		states string
		rule   Rule
		want   string
	}{
		{"e", Rule{}, "100"},            // never the only one
		{"er", Rule{}, "0 100"},         // half of two
		{"ee", Rule{}, "100 0"},         // the first one was ejected last
		{"eer", Rule{}, "100 0 100"},    // half of three is one
		{"eeee", Rule{}, "100 100 0 0"}, //
		{"exxx", Rule{}, "100 0 0 0"},   // the others are down by their probes: it is the only one
		{"eexx", Rule{}, "100 0 0 0"},
		{"eedd", Rule{}, "100 0 0 0"},
		{"eeee", Rule{MaxEjected: 0.25}, "100 100 100 0"},
		{"eeee", Rule{MaxEjected: 0.24}, "100 100 100 100"},
		{"eeee", Rule{MaxEjected: 1}, "0 0 0 0"},
		{"eeee", Rule{MaxEjected: 1, Quorum: 2}, "100 100 0 0"},
		{"eeee", Rule{MaxEjected: 0.5, Quorum: 3}, "100 100 100 0"},
		{"eexd", Rule{MaxEjected: 0.5, Quorum: 2}, "100 0 0 100"}, // one ejection is void, and the quorum takes what is draining first
		{"eerr", Rule{Panic: 0.6}, "100 100 100 100"},
	} {
		g := ejectedGroup(c.rule, c.states, now)
		if got := weights(g); got != c.want {
			t.Errorf("%s by %+v: the weights are %s, want %s", c.states, c.rule, got, c.want)
		}
		checkLaws(t, g, now)
	}
}

// Whatever gateways report, and in which order, of the members that are ready by their probes
// all but Rule.MaxEjected stay in rotation, and an ejection that is in force ends only when the
// gateways or the probes end it, or when fewer members are ready.
func TestEjectionsNeverTakeOutMoreThanTheirShare(t *testing.T) {
	const names = 9
	r := rand.New(rand.NewPCG(3, 9))
	now := time.Unix(1000, 0)
	for events := 0; events < 100_000; {
		rule := Rule{
			MaxEjected: probe.Share([]float64{0, 0.1, 0.34, 0.9, 0.99}[r.IntN(5)]), Quorum: r.IntN(3),
			Panic: probe.Share([]float64{0, 0.3}[r.IntN(2)]), SlowStart: time.Duration(r.IntN(2)) * 10 * time.Second,
		}
		share := float64(rule.MaxEjected)
		if share == 0 {
			share = 0.5
		}
		g := groupOf(rule, strings.Repeat("r", names), now)
		for range 1000 {
			events++
			now = now.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
			name := fmt.Sprintf("m%03d", r.IntN(names))
			o := &observed{target: name, state: probe.GatewayReady, since: now}
			switch r.IntN(8) {
			case 0:
				o.state = probe.GatewayState(r.IntN(probe.GatewayStates))
			case 1:
			default: // observers are eager
				o.state, o.ejected = probe.GatewayDown, true
			}
			g.put(o, g.members.get(name), now, false)
			g.replan(now, g.slow)
			passing, used := 0, 0
			for m := range g.members.current().from("") {
				if m.acting.TakesRequests() || m.ejected {
					passing++
					used += one(m.InRotation)
				}
			}
			if out := passing - used; float64(out) > share*float64(passing) || passing > 0 && used == 0 {
				t.Fatalf("rule %+v: of %d members that are ready %d are in rotation", rule, passing, used)
			}
			if events%50 == 0 {
				checkLaws(t, g, now)
				g.publish(now, false, false)
			}
		}
	}
}

// A member that was ejected and stayed in rotation has no slow start when the ejection ends.
func TestAnEjectionBeyondTheBoundChangesNothing(t *testing.T) {
	now := time.Unix(1000, 0)
	g := groupOf(Rule{SlowStart: time.Minute}, "r", now)
	for _, o := range []observed{{state: probe.GatewayDown, ejected: true}, {state: probe.GatewayReady}} {
		o.target, o.since = "m000", now
		g.put(&o, g.members.get("m000"), now, false)
		g.replan(now, false)
		if got := weights(g); got != "100" {
			t.Errorf("%v, ejected %v: the weight is %s", o.state, o.ejected, got)
		}
	}
}
