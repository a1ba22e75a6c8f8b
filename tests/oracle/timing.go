package oracle

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Timing is when attempts may begin. A life's first attempt, of a probe that
// nothing gates, begins from Early before to Late after its initial delay is
// over. Between two attempts lie at least Least and at most Most. All count in
// periods, but for Early; to each the time that attempts took is added, and a
// tolerance for a machine that is late.
type Timing struct {
	Early time.Duration
	Late  float64
	Least float64
	Most  float64
}

// The sides' timings. The kubelet looks at its ticks only (K25, K27), cuts times
// to whole seconds (K39), and attempts readiness out of turn while it fails (K96),
// which can cost it a turn (K97). Ours begins at the delay's end, and its turns lie
// at a phase of their own.
func kubeletTiming(kind probe.Kind) Timing {
	t := Timing{Early: time.Second, Late: 1, Least: 1, Most: 1}
	if kind == probe.Readiness {
		t.Least, t.Most = 0, 2
	}
	return t
}

func sondeTiming(probe.Kind) Timing {
	return Timing{Early: 10 * time.Millisecond, Late: 0, Least: 0.5, Most: 1.5}
}

// podTiming is ours where a pod's status says when a container has started, in
// whole seconds, and readiness is attempted out of turn while it fails (K96).
func podTiming(kind probe.Kind) Timing {
	t := sondeTiming(kind)
	t.Early = time.Second
	if kind == probe.Readiness {
		t.Least = 0
	}
	return t
}

// shedding is a timing of ours on a machine that was so late that turns of passing
// probes were given up, each at most one in a row.
func shedding(timing func(probe.Kind) Timing) func(probe.Kind) Timing {
	return func(kind probe.Kind) Timing {
		t := timing(kind)
		t.Most++
		return t
	}
}

// Tolerance is what is allowed to a machine that is not late at all.
const Tolerance = 300 * time.Millisecond

// punctual returns what was not on time in a play.
func punctual(p *play, timing func(probe.Kind) Timing, tolerance time.Duration) []Difference {
	var all []Difference
	for _, at := range p.spots() {
		l := p.lines[at]
		if step, problem := l.punctual(p, at.container, timing(at.kind), tolerance); problem != "" {
			all = append(all, Difference{p.script, at.container, at.kind, step, "timing", problem, ""})
		}
	}
	return all
}

func (l *line) punctual(p *play, container string, t Timing, tolerance time.Duration) (step int, problem string) {
	period := time.Duration(l.check.Period) * time.Second
	within := func(least, most, got time.Duration) bool { return least-tolerance <= got && got <= most+tolerance }
	for i, a := range l.attempts {
		if i == 0 {
			continue
		}
		before := l.attempts[i-1]
		if before.life != a.life || !p.quiet(before.step, a.step) {
			continue
		}
		gap, took := a.at.Sub(before.at), l.recent(i)
		least := max(0, scale(t.Least, period)-took)
		if !within(least, scale(t.Most, period)+took, gap) {
			return a.step, fmt.Sprintf("attempt %d came %v after the one before, want %v to %v", i+1, gap, least, scale(t.Most, period)+took)
		}
	}
	return l.firstPunctual(p, container, t, within)
}

func scale(f float64, d time.Duration) time.Duration { return time.Duration(f * float64(d)) }

// recent bounds how long the two attempts before the i-th took.
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

// quiet reports whether nothing but answers has happened from one step to
// another.
func (p *play) quiet(from, to int) bool {
	for _, step := range p.script.Steps[from+1 : to+1] {
		if step.Do != Answer {
			return false
		}
	}
	return true
}

// firstPunctual looks at the first attempts of lives that begin with Start.
func (l *line) firstPunctual(p *play, container string, t Timing, within func(least, most, got time.Duration) bool) (step int, problem string) {
	if l.gated(p.script) {
		return 0, ""
	}
	delay := time.Duration(l.check.Delay) * time.Second
	for i, a := range l.attempts {
		n := p.starts(a.step)
		if n < 0 || a.life != p.script.lifeAt(p.script.container(container), n).number || i > 0 && l.attempts[i-1].life == a.life || !p.quiet(n, a.step) {
			continue
		}
		got, late := a.at.Sub(p.began[n]), scale(t.Late, time.Duration(l.check.Period)*time.Second)
		if !within(delay-t.Early, delay+late+l.recent(i), got) {
			return a.step, fmt.Sprintf("the first attempt came %v after the start, want %v to %v", got, delay-t.Early, delay+late)
		}
	}
	return 0, ""
}

// gated reports whether a probe waits for a startup probe, or has one's answers
// still to come.
func (l *line) gated(s *Script) bool {
	for _, c := range s.Containers {
		if l.check.Kind != probe.Startup && c.check(probe.Startup) != nil {
			return true
		}
	}
	return len(s.Containers) > 1 // the steps of another container come between
}

// starts returns the latest step up to n that started a life, or -1.
func (p *play) starts(n int) int {
	for ; n >= 0; n-- {
		if p.script.Steps[n].Do == Start {
			return n
		}
	}
	return -1
}
