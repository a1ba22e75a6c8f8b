package times

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/probe"
)

// everySide runs a test on the kubelet and on Sonde's sides: its checks hold for all of them.
func everySide(t *testing.T, test func(t *testing.T, s side)) {
	inBubble(t, "kubelet", func(t *testing.T) { test(t, newKubelet) })
	for name, s := range sides {
		inBubble(t, name, func(t *testing.T) { test(t, s) })
	}
}

// allKinds returns probes of all three kinds: startup 2 s x 3, readiness 4 s x 3, liveness 5 s x 2.
func allKinds() map[probe.Kind]v1.Probe {
	return map[probe.Kind]v1.Probe{
		probe.Startup: numbers(0, 2, 1, 1, 3), probe.Readiness: numbers(0, 4, 1, 1, 3), probe.Liveness: numbers(0, 5, 1, 1, 2),
	}
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func TestAttemptsAreAPeriodApart(t *testing.T) {
	everySide(t, func(t *testing.T, s side) {
		probes := allKinds()
		for i, p := range play(t, s, scenario{probes: probes, last: 5 * time.Minute}) {
			if n := len(p.attempts[probe.Startup]); n != 1 {
				t.Errorf("pod %d: %d attempts of a startup probe that passes", i, n)
			}
			for _, kind := range []probe.Kind{probe.Readiness, probe.Liveness} {
				// In the first period there may be more: when the container starts, and
				// while it is not ready (K96).
				period := seconds(probes[kind].PeriodSeconds)
				regular := slices.DeleteFunc(p.attempts[kind], func(age time.Duration) bool { return age < 2*period })
				if want := int(5*time.Minute/period) - 3; len(regular) < want {
					t.Errorf("pod %d: %d attempts of %v, want at least %d", i, len(regular), kind, want)
				}
				for j := 1; j < len(regular); j++ {
					if gap := regular[j] - regular[j-1]; gap < period-batch || gap > period+batch {
						t.Errorf("pod %d: attempt %d of %v came %v after the one before, want %v", i, j+1, kind, gap, period)
						break
					}
				}
			}
		}
	})
}

func TestFirstAttemptKeepsTheInitialDelay(t *testing.T) {
	for _, kind := range []probe.Kind{probe.Startup, probe.Readiness, probe.Liveness} {
		t.Run(kind.String(), func(t *testing.T) {
			everySide(t, func(t *testing.T, s side) {
				c := scenario{probes: map[probe.Kind]v1.Probe{kind: numbers(7, 3, 1, 1, 3)}, last: time.Minute}
				for i, p := range play(t, s, c) {
					if first := p.attempts[kind][0]; first < 7*time.Second || first > 10*time.Second+batch {
						t.Errorf("pod %d: the first attempt came after %v, want from 7s to 10s", i, first)
					}
				}
			})
		})
	}
}

func TestReadinessFollowsTheAppWithinItsThresholds(t *testing.T) {
	const up, down = 12 * time.Second, 63 * time.Second
	probes := map[probe.Kind]v1.Probe{probe.Readiness: numbers(0, 4, 1, 2, 3)}
	everySide(t, func(t *testing.T, s side) {
		for i, p := range play(t, s, scenario{probes: probes, app: app{up: up, down: down}, last: 2 * time.Minute}) {
			// The last failed attempt was at most a period earlier, and may have been followed by one outside the period, triggered
			// by a change of the pod.
			if at := becameReady(p); at < up || at > up+2*4*time.Second+batch {
				t.Errorf("pod %d was ready after %v, want from %v to %v", i, at, up, up+8*time.Second)
			}
			if at := becameUnready(p); at < down+8*time.Second-batch || at > down+12*time.Second+batch {
				t.Errorf("pod %d was not ready after %v, want from %v to %v", i, at, down+8*time.Second, down+12*time.Second)
			}
		}
	})
}

func TestOtherProbesBeginWithinAPeriodOfTheStart(t *testing.T) {
	everySide(t, func(t *testing.T, s side) {
		for i, p := range play(t, s, scenario{probes: allKinds(), app: app{up: 3 * time.Second}, last: time.Minute}) {
			started := p.attempts[probe.Startup][len(p.attempts[probe.Startup])-1]
			if started < 3*time.Second || started > 5*time.Second+batch {
				t.Errorf("pod %d started after %v, want from 3s to 5s", i, started)
			}
			for kind, period := range map[probe.Kind]time.Duration{probe.Readiness: 4 * time.Second, probe.Liveness: 5 * time.Second} {
				if first := p.attempts[kind][0]; first < started || first > started+period+batch {
					t.Errorf("pod %d: the first attempt of %v came %v after the start, want at most %v", i, kind, first-started, period)
				}
			}
		}
	})
}

func TestHangingAttemptsAreNotMadeUpFor(t *testing.T) {
	everySide(t, func(t *testing.T, s side) {
		c := scenario{probes: map[probe.Kind]v1.Probe{probe.Readiness: numbers(0, 2, 5, 1, 100)}, app: app{took: never}, last: 2 * time.Minute}
		for i, p := range play(t, s, c) {
			all := p.attempts[probe.Readiness]
			for j := 1; j < len(all); j++ {
				if gap := all[j] - all[j-1]; gap < 5*time.Second-batch || gap > 7*time.Second+batch {
					t.Errorf("pod %d: attempt %d came %v after the one before, want from 5s, the timeout, to 7s", i, j+1, gap)
				}
			}
		}
	})
}

// running plays until a pod is ready, or its container has run for a minute.
func running(t *testing.T, s side, name, uid string, probes map[probe.Kind]v1.Probe, a app) *pod {
	t.Helper()
	p := newNode(t, s).add(podSpec(name, uid, probes), a)
	p.start()
	wait(time.Minute)
	return p
}

func TestRestartOfTheProberKeepsStartedAndReady(t *testing.T) {
	everySide(t, func(t *testing.T, s side) {
		p := running(t, s, "web", "1", allKinds(), app{})
		before := p.last()
		if !before.started || !before.ready {
			t.Fatalf("before the restart the pod is %+v", before)
		}
		for range 3 {
			p.node.restart(t, s, 20*time.Second)
			wait(time.Minute)
		}
		if after := p.last(); after != before || p.isKilled {
			t.Errorf("K164 to K166: the flags changed %+v, killed: %v", p.flags, p.isKilled)
		}
		if n := len(p.attempts[probe.Startup]); n > 0 {
			t.Errorf("K98: the startup probe was attempted %d times", n)
		}
		if len(p.attempts[probe.Readiness]) == 0 || len(p.attempts[probe.Liveness]) == 0 {
			t.Errorf("the attempts are %v", p.attempts)
		}
		p.node.prober.end()
	})
}

func TestAppThatFailedDuringTheRestartIsNoticed(t *testing.T) {
	everySide(t, func(t *testing.T, s side) {
		probes := allKinds()
		delete(probes, probe.Liveness)
		p := running(t, s, "web", "1", probes, app{down: 61 * time.Second})
		p.node.restart(t, s, 20*time.Second)
		restarted := p.age()
		if f := p.last(); !f.ready {
			t.Errorf("K164: the pod is %+v at once", f)
		}
		wait(time.Minute)
		// Two or three periods. The kubelet waits for up to one more (K22), and then makes two attempts in immediate succession,
		// since nothing is cached (K96).
		if at := becameUnready(p) - restarted; at < 4*time.Second-batch || at > 16*time.Second+batch {
			t.Errorf("the pod was not ready %v after the restart, want from 4s to 16s", at)
		}
		p.node.prober.end()
	})
}

func TestRestartWhileThePodIsNotReadyDoesNotMakeItReady(t *testing.T) {
	everySide(t, func(t *testing.T, s side) {
		probes := map[probe.Kind]v1.Probe{probe.Readiness: numbers(0, 4, 1, 1, 3)}
		p := running(t, s, "web", "1", probes, app{up: never})
		p.node.restart(t, s, 20*time.Second)
		wait(time.Minute)
		if at := becameReady(p); at != never {
			t.Errorf("the pod was ready after %v", at)
		}
		p.node.prober.end()
	})
}

// stopInFlight starts an attempt that takes three seconds and fails, and stops the probe meanwhile.
func stopInFlight(t *testing.T, s side, kind probe.Kind, stop func(proberManager, *v1.Pod)) *pod {
	t.Helper()
	n := newNode(t, s)
	p := n.add(podSpec("web", "1", map[probe.Kind]v1.Probe{kind: numbers(0, 10, 5, 1, 1)}), app{up: never, took: 3 * time.Second})
	p.start()
	for p.count(kind) == 0 {
		wait(100 * time.Millisecond)
	}
	stop(n.prober, p.spec)
	wait(time.Minute)
	n.prober.end()
	return p
}

func (p *pod) count(kind probe.Kind) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.attempts[kind])
}

var stops = map[string]func(proberManager, *v1.Pod){
	"StopLivenessAndStartup": func(m proberManager, pod *v1.Pod) { m.StopLivenessAndStartup(pod) },
	"RemovePod":              func(m proberManager, pod *v1.Pod) { m.RemovePod(pod) },
}

func TestAttemptThatIsStoppedInFlightDoesNotCount(t *testing.T) {
	for how, stop := range stops {
		for _, kind := range []probe.Kind{probe.Startup, probe.Liveness} {
			how := how + ", " + kind.String()
			inBubble(t, "kubelet, "+how, func(t *testing.T) {
				if !stopInFlight(t, newKubelet, kind, stop).isKilled {
					t.Error("K9: the kubelet did not count the attempt: Sonde's difference has gone")
				}
			})
			for name, s := range sides {
				inBubble(t, name+", "+how, func(t *testing.T) {
					if p := stopInFlight(t, s, kind, stop); p.isKilled || len(p.attempts[kind]) != 1 {
						t.Errorf("K9, K10: killed: %v, attempts at %v", p.isKilled, p.attempts[kind])
					}
				})
			}
		}
	}
}

func TestPodsOfOneNameHaveTheirOwnTimes(t *testing.T) {
	everySide(t, func(t *testing.T, s side) {
		probes := map[probe.Kind]v1.Probe{probe.Readiness: numbers(0, 4, 1, 1, 2), probe.Liveness: numbers(0, 5, 1, 1, 2)}
		n := newNode(t, s)
		var all []*pod
		for i, a := range []app{{}, {up: never}, {down: 30 * time.Second}} {
			p := n.add(podSpec("web", fmt.Sprint(i), probes), a)
			p.start()
			all = append(all, p)
			time.Sleep(time.Second)
		}
		wait(time.Minute)
		for i, want := range []struct {
			ready, killed bool
			from, to      time.Duration
		}{{true, false, 0, 0}, {false, true, 5 * time.Second, 10 * time.Second}, {false, true, 35 * time.Second, 40 * time.Second}} {
			p := all[i]
			if p.last().ready != want.ready || p.isKilled != want.killed || p.isKilled && (p.killed < want.from-batch || p.killed > want.to+batch) {
				t.Errorf("pod %d: ready %v, killed %v after %v, want %+v", i, p.last().ready, p.isKilled, p.killed, want)
			}
		}
		n.prober.end()
	})
}

func TestPodThatIsRemovedStaysAsItWas(t *testing.T) {
	probes := map[probe.Kind]v1.Probe{probe.Readiness: numbers(0, 4, 1, 1, 2)}
	removed := func(t *testing.T, s side) flag {
		p := running(t, s, "web", "1", probes, app{up: never})
		p.node.prober.RemovePod(p.spec)
		attempts := p.count(probe.Readiness)
		wait(time.Minute)
		if n := p.count(probe.Readiness); n > attempts+1 {
			t.Errorf("after the pod was removed there were %d attempts", n-attempts)
		}
		p.sync()
		p.node.prober.end()
		return p.last()
	}
	inBubble(t, "kubelet", func(t *testing.T) {
		if !removed(t, newKubelet).ready {
			t.Error("K13: the kubelet does not call the pod ready: Sonde's difference has gone")
		}
	})
	for name, s := range sides {
		inBubble(t, name, func(t *testing.T) {
			if f := removed(t, s); f.ready {
				t.Errorf("the pod is %+v", f)
			}
		})
	}
}

// TestReadinessAttemptDuringTheDeletionCounts deletes a pod while an attempt of its readiness probe is in flight: this attempt and
// later ones count as usual (K7, K51).
func TestReadinessAttemptDuringTheDeletionCounts(t *testing.T) {
	everySide(t, func(t *testing.T, s side) {
		n := newNode(t, s)
		probes := map[probe.Kind]v1.Probe{probe.Readiness: numbers(0, 10, 5, 1, 1), probe.Startup: numbers(0, 10, 5, 1, 1)}
		p := n.add(podSpec("web", "1", probes), app{took: 3 * time.Second, down: 25 * time.Second})
		p.start()
		for p.count(probe.Readiness) == 0 {
			wait(100 * time.Millisecond)
		}
		n.prober.StopLivenessAndStartup(p.spec)
		if wait(5 * time.Second); !p.last().ready {
			t.Error("the attempt in flight does not make the pod ready")
		}
		if wait(time.Minute); p.last().ready || !p.last().started || p.isKilled {
			t.Errorf("after later failures the pod is %+v, killed: %v", p.last(), p.isKilled)
		}
		n.prober.end()
	})
}
