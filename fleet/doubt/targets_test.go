package doubt_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/fleet/doubt"
	"github.com/sonde-probe/sonde/probe"
)

func TestTargetsAreCounted(t *testing.T) {
	var all doubt.Targets
	expect := func(when string, now time.Time, want string) {
		t.Helper()
		own, turned := all.Count(now)
		if got := fmt.Sprintf("%d fail of %d, %d turned", own.Failing, own.Targets, turned); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	at := func(seconds int) time.Time { return zero.Add(time.Duration(seconds) * time.Second) }
	expect("none is known", at(0), "0 fail of 0, 0 turned")
	all.Remove("web")
	all.Set("web", probe.Undecided, at(0))
	expect("one is undecided", at(0), "0 fail of 0, 0 turned")
	all.Set("web", probe.Passing, at(1))
	all.Set("old", probe.Failing, at(1))
	expect("one fails from the beginning", at(1), "1 fail of 2, 0 turned")
	all.Set("web", probe.Failing, at(10))
	all.Set("web", probe.Failing, at(30))
	expect("one has turned", at(69), "2 fail of 2, 1 turned")
	expect("that was a minute ago", at(70), "2 fail of 2, 0 turned")
	all.Set("old", probe.Passing, at(70))
	all.Set("old", probe.Failing, at(71))
	expect("one has recovered and turned", at(71), "2 fail of 2, 1 turned")
	all.Set("web", probe.Passing, at(72))
	all.Set("web", probe.Undecided, at(73))
	expect("one has another instance", at(73), "1 fail of 1, 1 turned")
	all.Set("web", probe.Failing, at(74))
	expect("that fails, and the one before has passed", at(74), "2 fail of 2, 2 turned")
	all.Remove("web")
	all.Remove("web")
	expect("one is removed", at(74), "1 fail of 1, 1 turned")
	all.Set("web", probe.Failing, at(75))
	expect("one of its name is taken over", at(75), "2 fail of 2, 1 turned")
}

// The counts are those of the latest verdicts, whatever happened before.
func TestCountsDoNotDrift(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all doubt.Targets
	model := map[string]probe.Verdict{}
	for i := range 10_000 {
		target := fmt.Sprint(random.IntN(20))
		if random.IntN(5) == 0 {
			all.Remove(target)
			delete(model, target)
		} else {
			model[target] = probe.Verdict(random.IntN(3))
			all.Set(target, model[target], zero.Add(time.Duration(i)*time.Second))
		}
		var want doubt.Sample
		for _, v := range model {
			if v != probe.Undecided {
				want.Targets++
			}
			if v == probe.Failing {
				want.Failing++
			}
		}
		own, turned := all.Count(zero.Add(time.Duration(i) * time.Second))
		if own != want || turned > own.Failing {
			t.Fatalf("after %d changes: %+v, %d turned, want %+v", i, own, turned, want)
		}
	}
}
