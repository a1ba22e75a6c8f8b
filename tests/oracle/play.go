package oracle

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// probeKey names one probe of a script.
type probeKey struct {
	script    string
	container string
	kind      probe.Kind
}

// play is one side's run of a script: it supplies the next answers, and records the actions of the side. Its methods are safe for
// concurrent use by multiple goroutines.
type play struct {
	script *Script

	mu    sync.Mutex
	step  int
	began []time.Time // start of each step
	lines map[probeKey]*line
	flags []sum
	moved func() // called with mu held when an answer was used
	late  bool   // an attempt did not count, because the engine reports that it was stalled
}

// line is the part of one probe in a play.
type line struct {
	check    Check
	left     string // unused answers of this step
	now      byte   // the answer of the latest attempt
	tries    int    // tries of the attempt so far; 0 once it needs no more
	of       int    // number of the attempt
	seen     int    // tcp: how many attempts of this step in a row have had the same result
	same     byte   // that result
	instance int    // the instance of the last published verdict

	notes    []note
	attempts []begun
}

// sum is started and ready of a container after a step.
type sum struct {
	step      int
	container string
	text      string
}

// note records one action of a side.
type note struct {
	step int
	what string // "answer F", "publish web#2 failing"
	text string // of an answer: the side's text for it
	at   time.Time
}

// begun is an attempt: its start, its instance and its answer.
type begun struct {
	at       time.Time
	step     int
	instance int
	letter   byte
}

func newPlay(s *Script) *play {
	p := &play{script: s, step: -1, lines: map[probeKey]*line{}, moved: func() {}}
	for _, c := range s.Containers {
		for _, k := range c.Checks {
			p.lines[probeKey{s.Name, c.Name, k.Kind}] = &line{check: k}
		}
	}
	return p
}

// copy returns a copy of the current play.
func (p *play) copy() *play {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &play{script: p.script, step: p.step, began: slices.Clone(p.began), flags: slices.Clone(p.flags), lines: map[probeKey]*line{}, late: p.late}
	for at, l := range p.lines {
		own := *l
		own.notes, own.attempts = slices.Clone(l.notes), slices.Clone(l.attempts)
		c.lines[at] = &own
	}
	return c
}

// stalled records that an attempt did not count because of the machine.
func (p *play) stalled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = true
}

// begin starts a step with its answers.
func (p *play) begin(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if l.now != Nothing {
			l.finish(p.step)
			l.now = Nothing
		} // otherwise an attempt without an answer may be in progress: it stays without one
		l.left, l.seen = "", 0
	}
	p.step = n
	p.began = append(p.began, time.Now())
	for _, a := range p.script.Steps[n].Answers {
		p.lines[probeKey{p.script.Name, a.Container, a.Kind}].left = a.Letters
	}
	p.moved()
}

// try returns the answer to one try. Attempt is the number of its attempt, or unnumbered on a side without numbers: there, an
// attempt with an error counts as maxTries tries.
func (p *play) try(at probeKey, attempt int) byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[at]
	if attempt != unnumbered && attempt == l.of && !triedAgain(l.now) {
		p.late = true // the engine has not used the result: it was stalled
	}
	if l.tries > 0 && attempt == l.of {
		l.tries++
	} else {
		l.finish(p.step)
		l.fetch(attempt, p.step)
		if l.now != Nothing {
			p.moved()
		}
	}
	if l.tries == maxTries || !triedAgain(l.now) {
		l.finish(p.step)
	}
	return l.now
}

// succeeds reports whether the next answer is a success.
func (p *play) succeeds(at probeKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[at]
	return l.left != "" && strings.IndexByte(successes, l.left[0]) >= 0
}

// successes are the answers that are successes.
const successes = string(Success) + string(Warning) + string(Slow)

// show makes the next answer the answer of the current attempt, without using it up, if it is a plain failure; it reports whether
// it is.
func (p *play) show(at probeKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[at]
	if l.left == "" || l.left[0] != Failure {
		return false
	}
	l.finish(p.step)
	l.now = Failure
	return true
}

// unnumbered is the number of an attempt on a side without numbers.
const unnumbered = -1

// triedAgain reports whether an attempt with this answer is retried.
func triedAgain(letter byte) bool {
	return letter == Broken || letter == Stalled || letter == Nothing
}

// over records that the attempt in progress needs no more tries.
func (p *play) over(at probeKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines[at].finish(p.step)
}

// fetch starts an attempt with the next answer.
func (l *line) fetch(attempt, step int) {
	l.now, l.tries, l.of = Nothing, 1, attempt
	if l.left != "" {
		l.now, l.left = l.left[0], l.left[1:]
	}
	l.attempts = append(l.attempts, begun{time.Now(), step, l.instance, l.now})
}

// finish records the answer of a finished attempt.
func (l *line) finish(step int) {
	switch {
	case l.tries == 0 || l.now == Nothing:
	case triedAgain(l.now):
		l.note(step, fmt.Sprintf("answer %c in %d tries", l.now, l.tries))
	default:
		l.note(step, fmt.Sprintf("answer %c", l.now))
	}
	l.tries = 0
}

func (l *line) note(step int, what string) {
	l.notes = append(l.notes, note{step: step, what: what, at: time.Now()})
}

// kernel records an attempt that the kernel has answered.
func (p *play) kernel(at probeKey, letter byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[at]
	if l.same != letter { // an attempt can begin just before the step changes its result
		l.seen, l.same = 0, letter
	}
	l.seen++
	l.attempts = append(l.attempts, begun{time.Now(), p.step, l.instance, letter})
	l.note(p.step, "answer "+string(letter))
	if l.seen <= l.enough() {
		p.moved()
	}
}

// text adds the side's text of a result.
func (p *play) text(at probeKey, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[at]
	answered := l.tries == 0 && l.now != Nothing || l.check.Via == ViaTCP
	if n := len(l.notes); n > 0 && answered {
		l.notes[n-1].text = text
	}
}

// publish records a verdict about the n-th instance.
func (p *play) publish(at probeKey, instance int, v probe.Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[at]
	l.instance = instance
	l.note(p.step, fmt.Sprintf("publish %v of instance %d", v, instance))
}

// add records started and ready of a container.
func (p *play) add(container, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flags = append(p.flags, sum{p.step, container, text})
}

// count records the counters of a probe after a step with answers, when its container
// runs and there are counters.
func (p *play) count(at probeKey, step Step, good, bad uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	given := slices.ContainsFunc(step.Answers, func(a Answers) bool { return a.Container == at.container })
	if l := p.lines[at]; given && l.check.Via != ViaTCP {
		l.note(p.step, fmt.Sprintf("counted %d successful and %d failed", good, bad))
	}
}

// used reports whether a probe has used all answers of the step. If the kernel answers, that is the case after enough equal answers
// for a verdict.
func (p *play) used(at probeKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[at]
	if l.check.Via == ViaTCP {
		return l.seen >= l.enough()
	}
	return l.left == ""
}

// enough returns the number of equal answers that decide in any state.
func (l *line) enough() int { return max(l.check.Success, l.check.Failure) }
