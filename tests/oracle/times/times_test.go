package times

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/probe"
)

// scenario is a pod, an app, and the time for which they are watched.
type scenario struct {
	name   string
	probes map[probe.Kind]v1.Probe
	app    app
	last   time.Duration // how long the container runs
}

// population is the number of pods that play a scenario on each side. The kubelet's pods have their ticks evenly spread over a
// period, since a tick depends on when the pod was added; the attempts of Sonde are spread by a hash of the pods' names.
const population = 200

// play plays a scenario on a side, and returns the pods.
func play(t *testing.T, s side, c scenario) []*pod {
	n := newNode(t, s)
	defer n.prober.end()
	var longest time.Duration
	for _, p := range c.probes {
		longest = max(longest, time.Duration(p.PeriodSeconds)*time.Second)
	}
	begin := time.Now()
	var pods []*pod
	for i := range population {
		name := fmt.Sprintf("pod-%d", i)
		pods = append(pods, n.add(podSpec(name, name, c.probes), c.app))
		time.Sleep(time.Until(begin.Add(longest * time.Duration(i+1) / population)))
	}
	time.Sleep(2*longest - time.Since(begin)) // so that all containers start at a whole second
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	for _, p := range pods {
		p.start()
	}
	wait(c.last)
	return pods
}

// ages returns when an event occurred in each pod, sorted; never stands for an event that did not occur.
func ages(pods []*pod, of func(*pod) time.Duration) []time.Duration {
	all := make([]time.Duration, len(pods))
	for i, p := range pods {
		p.mu.Lock()
		all[i] = of(p)
		p.mu.Unlock()
	}
	slices.Sort(all)
	return all
}

// killed returns when the container was killed.
func killed(p *pod) time.Duration {
	if p.isKilled {
		return p.killed
	}
	return never
}

// becameReady returns when the container became ready for the first time.
func becameReady(p *pod) time.Duration {
	for _, f := range p.flags {
		if f.ready {
			return f.age
		}
	}
	return never
}

// becameUnready returns when the container was no longer ready.
func becameUnready(p *pod) time.Duration {
	if i := slices.IndexFunc(p.flags, func(f flag) bool { return f.ready }); i >= 0 && i+1 < len(p.flags) {
		return p.flags[i+1].age
	}
	return never
}

// batch is how much earlier than due Sonde may start an attempt.
const batch = 20 * time.Millisecond

// compareAges compares when an event occurred on both sides: whether it did, the earliest and the latest time, and the
// distribution. Slack widens the bounds.
func compareAges(kubelet, sonde []time.Duration, slack time.Duration) (problem string) {
	n := len(kubelet)
	first, last := kubelet[0]-slack, kubelet[n-1]+slack
	if sonde[0] < first || sonde[n-1] > last {
		return fmt.Sprintf("sonde: %s, kubelet: %s", summary(sonde), summary(kubelet))
	}
	if d := distance(kubelet, sonde, slack); d > 0.15 {
		return fmt.Sprintf("the distributions are %.2f apart: sonde: %s, kubelet: %s", d, summary(sonde), summary(kubelet))
	}
	return ""
}

// distance returns the greatest difference between two distributions (Kolmogorov and Smirnov), for times that differ by more than
// slack.
func distance(a, b []time.Duration, slack time.Duration) (most float64) {
	below := func(all []time.Duration, x time.Duration) float64 {
		n, _ := slices.BinarySearch(all, x)
		return float64(n) / float64(len(all))
	}
	for _, x := range slices.Concat(a, b) {
		most = math.Max(most, below(a, x-slack)-below(b, x+slack))
		most = math.Max(most, below(b, x-slack)-below(a, x+slack))
	}
	return most
}

func summary(all []time.Duration) string {
	n, _ := slices.BinarySearch(all, never)
	if n == 0 {
		return "never"
	}
	return fmt.Sprintf("%d of %d from %v to %v, half of them until %v", n, len(all), all[0], all[n-1], all[n/2])
}

func liveness(p v1.Probe) map[probe.Kind]v1.Probe {
	return map[probe.Kind]v1.Probe{probe.Liveness: p}
}

func TestContainersAreKilledAtTheKubeletsTimes(t *testing.T) {
	for _, c := range []scenario{
		{"liveness 10 s x 3, never up", liveness(numbers(0, 10, 1, 1, 3)), app{up: never}, time.Minute},
		{"liveness 10 s x 3, up after 17 s", liveness(numbers(0, 10, 1, 1, 3)), app{up: 17 * time.Second}, time.Minute},
		{"liveness 10 s x 3, up after 25 s", liveness(numbers(0, 10, 1, 1, 3)), app{up: 25 * time.Second}, time.Minute},
		{"liveness 5 s x 1, up after 0.3 s", liveness(numbers(0, 5, 1, 1, 1)), app{up: 300 * time.Millisecond}, time.Minute},
		{"liveness 5 s x 1, never up", liveness(numbers(0, 5, 1, 1, 1)), app{up: never}, time.Minute},
		{"liveness 3 s x 2 after 7 s, never up", liveness(numbers(7, 3, 1, 1, 2)), app{up: never}, time.Minute},
		{"liveness 3 s x 2 after 7 s, up after 8 s", liveness(numbers(7, 3, 1, 1, 2)), app{up: 8 * time.Second}, time.Minute},
		{"liveness 4 s x 2, hangs for ever", liveness(numbers(0, 4, 3, 1, 2)), app{took: never}, time.Minute},
		{"startup 2 s x 5, never up", map[probe.Kind]v1.Probe{probe.Startup: numbers(0, 2, 1, 1, 5)}, app{up: never}, time.Minute},
		{"liveness 10 s x 3, down after 60 s", liveness(numbers(0, 10, 1, 1, 3)), app{down: time.Minute}, 2 * time.Minute},
		{"liveness 5 s x 1, down after 31 s", liveness(numbers(0, 5, 1, 1, 1)), app{down: 31 * time.Second}, time.Minute},
		{"liveness 3 s x 2 after 7 s, down after 40 s", liveness(numbers(7, 3, 1, 1, 2)), app{down: 40 * time.Second}, time.Minute},
		{"liveness 4 s x 2, answers in 2 s and is down after 30 s", liveness(numbers(0, 4, 3, 1, 2)), app{took: 2 * time.Second, down: 30 * time.Second}, time.Minute},
		{"liveness 10 s x 3, down from 60 s to 75 s", liveness(numbers(0, 10, 1, 1, 3)), app{down: time.Minute, back: 75 * time.Second}, 2 * time.Minute},
		{"liveness 10 s x 3, down from 60 s to 85 s", liveness(numbers(0, 10, 1, 1, 3)), app{down: time.Minute, back: 85 * time.Second}, 2 * time.Minute},
		{"liveness 10 s x 1, down from 60 s to 62 s", liveness(numbers(0, 10, 1, 1, 1)), app{down: time.Minute, back: 62 * time.Second}, 2 * time.Minute},
		{"startup 2 s x 5 and liveness 6 s x 2, down after 50 s", map[probe.Kind]v1.Probe{
			probe.Startup: numbers(0, 2, 1, 1, 5), probe.Liveness: numbers(0, 6, 1, 1, 2),
		}, app{down: 50 * time.Second}, 2 * time.Minute},
	} {
		compareSides(t, c, killed)
	}
}

// compareSides plays a scenario on the kubelet and on Sonde's sides, and compares when an event occurred.
func compareSides(t *testing.T, c scenario, of func(*pod) time.Duration) {
	t.Helper()
	t.Run(c.name, func(t *testing.T) {
		var theirs []time.Duration
		inBubble(t, "kubelet", func(t *testing.T) { theirs = ages(play(t, newKubelet, c), of) })
		var longest time.Duration
		for _, p := range c.probes {
			longest = max(longest, time.Duration(p.PeriodSeconds)*time.Second)
		}
		slack := 2*longest/population + batch
		for name, s := range sides {
			inBubble(t, name, func(t *testing.T) {
				ours := ages(play(t, s, c), of)
				if problem := compareAges(theirs, ours, slack); problem != "" {
					t.Error(problem)
				}
			})
		}
	})
}
