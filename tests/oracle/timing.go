package oracle

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Timing has the limits for the times of attempts. The first attempt of an instance starts at most Early before the end of the
// initial delay and, if the probe is not gated, at most Late after it. The time between two attempts is between Least and Most. All
// fields but Early are in periods; the durations of attempts and a tolerance for a late machine are added.
type Timing struct {
	Early time.Duration
	Late  float64
	Least float64
	Most  float64
}

// The limits of each side. The kubelet makes attempts only at its ticks (K25, K27), truncates times to whole seconds (K39), and
// triggers readiness while it fails (K96), which can cost a tick (K97). Sonde's regular times are like ticks; readiness also gets
// an extra attempt at the end of the delay, and then one at the next regular time.
func kubeletTiming(kind probe.Kind) Timing {
	t := Timing{Early: time.Second, Late: 1, Least: 1, Most: 1}
	if kind == probe.Readiness {
		t.Least, t.Most = 0, 2
	}
	return t
}

func sondeTiming(kind probe.Kind) Timing {
	t := Timing{Early: 10 * time.Millisecond, Late: 1, Least: 1, Most: 1}
	if kind == probe.Readiness {
		t.Late, t.Least = 0, 0
	}
	return t
}

// podTiming is the timing of Sonde with pods: the status has the start of a container in whole seconds, and readiness is triggered
// while it fails (K96).
func podTiming(kind probe.Kind) Timing {
	t := sondeTiming(kind)
	t.Early = time.Second
	if kind == probe.Readiness {
		t.Least = 0
	}
	return t
}

// shedding is Sonde's timing on an overloaded machine, where attempts of passing probes
// are skipped, at most one in a row.
func shedding(timing func(probe.Kind) Timing) func(probe.Kind) Timing {
	return func(kind probe.Kind) Timing {
		t := timing(kind)
		t.Most++
		return t
	}
}

// Tolerance is the tolerance on a machine that is not late.
const Tolerance = 300 * time.Millisecond

// punctual returns the attempts of a play outside the limits.
func punctual(p *play, timing func(probe.Kind) Timing, machine *metronome) []Difference {
	var all []Difference
	for _, at := range p.probeKeys() {
		w := watch{timing(at.kind), p, p.script.container(at.container), p.lines[at], machine}
		for i := range w.line.attempts {
			if problem := w.problem(i); problem != "" {
				all = append(all, Difference{
					Script: p.script, Container: at.container, Kind: at.kind, Step: w.line.attempts[i].step,
					Field: "timing", Kubelet: problem, ByTime: true,
				})
				break
			}
		}
	}
	return all
}

// watch checks the times of a probe's attempts.
type watch struct {
	Timing
	play      *play
	container *Container
	line      *line
	machine   *metronome
}

func (w *watch) period() time.Duration { return time.Duration(w.line.check.Period) * time.Second }

// problem describes what is wrong with the time of the i-th attempt.
func (w *watch) problem(i int) string {
	if i > 0 && w.line.attempts[i-1].instance == w.line.attempts[i].instance {
		return w.gap(i)
	}
	return w.first(i)
}

// gap checks the time between two attempts of an instance if there were only answers in between.
func (w *watch) gap(i int) string {
	before, a := w.line.attempts[i-1], w.line.attempts[i]
	if !w.play.quiet(before.step, a.step) {
		return ""
	}
	took := w.line.recent(i)
	least, most := max(0, scale(w.Least, w.period())-took), scale(w.Most, w.period())+took
	if got := a.at.Sub(before.at); !w.within(i, least, most, got) {
		return fmt.Sprintf("attempt %d came %v after the one before, want %v to %v", i+1, got, least, most)
	}
	return ""
}

// first checks the first attempt of an instance that began with Start.
func (w *watch) first(i int) string {
	a := w.line.attempts[i]
	n := w.play.starts(a.step)
	if len(w.play.script.Containers) > 1 || n < 0 || a.instance != w.play.script.instanceAt(w.container, n).number || !w.play.quiet(n, a.step) {
		return ""
	}
	delay := time.Duration(w.line.check.Delay) * time.Second
	least, most := delay-w.Early, delay+scale(w.Late, w.period())+w.line.recent(i)
	if w.isGated() {
		most = time.Hour // whenever the startup probe passes
	}
	if got := a.at.Sub(w.play.began[n]); !w.within(i, least, most, got) {
		return fmt.Sprintf("the first attempt came %v after the start, want %v to %v", got, least, most)
	}
	return ""
}

// within reports whether the i-th attempt was in time, given the machine's lateness since one period before the preceding attempts.
func (w *watch) within(i int, least, most, got time.Duration) bool {
	from := w.line.attempts[max(0, i-2)].at.Add(-w.period())
	if delay := time.Duration(w.line.check.Delay) * time.Second; i == 0 {
		from = from.Add(-delay)
	}
	tolerance := Tolerance + w.machine.late(from, w.line.attempts[i].at)
	return least-tolerance <= got && got <= most+tolerance
}

// isGated reports whether a probe waits for a startup probe.
func (w *watch) isGated() bool {
	return w.line.check.Kind != probe.Startup && w.container.check(probe.Startup) != nil
}

func scale(f float64, d time.Duration) time.Duration { return time.Duration(f * float64(d)) }

// recent returns the maximum duration of the two attempts before the i-th.
func (l *line) recent(i int) (took time.Duration) {
	for _, a := range l.attempts[max(0, i-2):i] {
		switch a.letter {
		case Late:
			took += time.Duration(l.check.Timeout) * time.Second
		case Stalled:
			took += maxTries * time.Duration(l.check.Timeout) * time.Second
		case Slow:
			took += slowness
		}
	}
	return took
}

// quiet reports whether there are only answers from one step to another.
func (p *play) quiet(from, to int) bool {
	for _, step := range p.script.Steps[from+1 : to+1] {
		if step.Do != Answer {
			return false
		}
	}
	return true
}

// starts returns the last step up to n that started an instance, or -1.
func (p *play) starts(n int) int {
	for ; n >= 0; n-- {
		if p.script.Steps[n].Do == Start {
			return n
		}
	}
	return -1
}
