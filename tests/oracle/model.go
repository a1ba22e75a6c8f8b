package oracle

import (
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// Accidents are undocumented behaviors of the kubelet that affect published results. The engine has them only with the kubelet's
// compatibility.
type Accidents struct {
	CarriesRuns    bool // K48: a run continues with the next instance
	FailsIdle      bool // K37: liveness fails while a container is not running, and until the next success
	ForgivesBodies bool // K71: a response body that is cut short or stalls does not count
	StartsStopped  bool // K99: a container whose startup probe was stopped has started
}

// kubeletsAccidents has all accidents.
var kubeletsAccidents = Accidents{true, true, true, true}

// MendedRow is an accident of the kubelet that the engine does not have by default.
type MendedRow struct {
	K    string // the kubelet's behaviour
	Why  string
	mend func(*Accidents)
}

// Mended returns the intended differences with the default compatibility, in addition
// to those of Wanted and of the handlers.
func Mended() []MendedRow {
	return []MendedRow{
		{"K48", "a new instance starts a new run; the kubelet continues the run of the previous instance", func(a *Accidents) { a.CarriesRuns = false }},
		{"K37", "liveness of an instance that is not running is undecided, and starts anew when it runs again; the kubelet publishes a failure, which can kill the container when it runs again", func(a *Accidents) { a.FailsIdle = false }},
		{"K71", "a response body that is cut short or stalls is a failure; the kubelet retries it three times and counts nothing", func(a *Accidents) { a.ForgivesBodies = false }},
		{"K99", "a container that has not started when its pod is deleted never starts; the kubelet reports it as started, and probes its readiness, once its startup worker has ended", func(a *Accidents) { a.StartsStopped = false }},
	}
}

// model is a third, minimal implementation of the rules, which plays scripts without waiting. With all accidents it must agree with
// the kubelet, and without any it must agree with the engine's default: every difference between those two must be one of the
// accidents.
type model struct {
	play      *play
	accidents Accidents
	instances map[string]instance
	lines     map[probeKey]*judged
	open      map[probeKey]bool // tcp: whether the port is open
	leaving   bool
	gone      bool // the pod was removed, or has a terminal phase
}

// judged is the model's state of a probe.
type judged struct {
	instance int
	verdict  probe.Verdict
	good     bool // the outcome of the run
	run      int
	held     bool
	down     bool

	passed, failed uint64 // attempts
}

// foretell returns the play that a script must lead to.
func foretell(s *Script, a Accidents) *play {
	m := &model{play: newPlay(s), accidents: a, instances: map[string]instance{}, lines: map[probeKey]*judged{}, open: map[probeKey]bool{}}
	for n, step := range s.Steps {
		m.play.begin(n)
		m.do(step)
		m.settle()
		if s.exists(n) {
			m.record(step)
		}
	}
	for _, l := range m.play.lines {
		for i := range l.notes {
			l.notes[i].text = untold
		}
	}
	return m.play
}

func (m *model) do(step Step) {
	switch step.Do {
	case Add:
		m.gone = false
		for at := range m.play.lines {
			m.lines[at] = &judged{good: true}
		}
	case Remove, Cleanup, Succeed:
		m.gone = true
	case Terminate:
		m.leaving = true
	case Sync, Answer:
	default:
		c := m.play.script.container(step.Container)
		m.instances[c.Name] = m.instances[c.Name].after(step, m.play.script.follows(c, step.Exit))
	}
}

// settle lets each probe look once, and then make attempts as long as it has answers.
func (m *model) settle() {
	if m.gone {
		return
	}
	for _, at := range m.play.probeKeys() {
		if l := m.play.lines[at]; l.check.Via == ViaTCP && l.left != "" {
			m.open[at] = l.left[0] == Success
		}
		m.look(at)
	}
	for again := true; again; {
		again = false
		for _, at := range m.play.probeKeys() {
			again = m.attempt(at) || again
		}
	}
}

// look publishes the verdict that follows from the state of the container's instance.
func (m *model) look(at probeKey) {
	j, l := m.lines[at], m.instances[at.container]
	if l.number == 0 || l.lost {
		return
	}
	if j.instance != l.number {
		m.adopt(at, l.number)
	}
	switch {
	case j.held:
	case l.phase != probe.Running:
		j.down = true
		m.publish(at, m.idle(at.kind))
	case j.down && !m.accidents.FailsIdle:
		j.down = false
		m.publish(at, initial(at.kind))
	}
}

func (m *model) adopt(at probeKey, instance int) {
	j := m.lines[at]
	if !m.accidents.CarriesRuns {
		j.run = 0
	}
	j.held, j.down = false, false
	j.instance, j.verdict = instance, initial(at.kind)
	m.play.publish(at, instance, j.verdict)
}

func initial(k probe.Kind) probe.Verdict {
	return map[probe.Kind]probe.Verdict{probe.Readiness: probe.Failing, probe.Liveness: probe.Passing}[k]
}

// idle returns the verdict that is published for an instance that does not run.
func (m *model) idle(k probe.Kind) probe.Verdict {
	if k == probe.Liveness && !m.accidents.FailsIdle {
		return probe.Undecided
	}
	return probe.Failing
}

func (m *model) publish(at probeKey, v probe.Verdict) {
	if j := m.lines[at]; j.verdict != v {
		j.verdict = v
		m.play.publish(at, j.instance, v)
	}
}

// attempt makes at most one attempt of a probe, if permitted, and reports whether it made one.
func (m *model) attempt(at probeKey) bool {
	l := m.play.lines[at]
	if !m.may(at) {
		return false
	}
	if l.check.Via == ViaTCP {
		return m.kernel(at)
	}
	if l.left == "" {
		return false
	}
	letter := m.play.try(at, unnumbered)
	if !triedAgain(letter) {
		m.count(at, strings.ContainsRune("SWZ", rune(letter)))
		return true
	}
	if m.forgives(l) {
		m.play.try(at, unnumbered)
		m.play.try(at, unnumbered)
		return true
	}
	l.finish(m.play.step)
	m.count(at, false)
	return true
}

// forgives reports whether broken answers to a probe do not count.
func (m *model) forgives(l *line) bool { return l.check.Via != ViaHTTP || m.accidents.ForgivesBodies }

// kernel makes one attempt that the kernel answers, unless enough were made to decide.
func (m *model) kernel(at probeKey) bool {
	l := m.play.lines[at]
	if l.seen >= l.enough() {
		return false
	}
	m.play.kernel(at, Success)
	m.count(at, m.open[at])
	return true
}

// may reports whether a probe may be attempted.
func (m *model) may(at probeKey) bool {
	j, l := m.lines[at], m.instances[at.container]
	leaving := (m.leaving || m.play.script.Deleting) && at.kind != probe.Readiness
	if l.phase != probe.Running || l.lost || j.held || leaving {
		return false
	}
	return m.started(at.container) != (at.kind == probe.Startup)
}

// started reports whether a container runs and its startup probe has passed, or it has no startup probe, or no longer has one.
func (m *model) started(container string) bool {
	j := m.lines[probeKey{m.play.script.Name, container, probe.Startup}]
	l := m.instances[container]
	stopped := m.play.script.Deleting || m.leaving && !m.play.script.container(container).Sidecar
	passed := j == nil || j.verdict == probe.Passing || stopped && m.accidents.StartsStopped
	return l.phase == probe.Running && !l.lost && passed
}

// count folds an outcome into the run.
func (m *model) count(at probeKey, good bool) {
	l, j := m.play.lines[at], m.lines[at]
	if good {
		j.passed++
	} else {
		j.failed++
	}
	if j.good != good {
		j.good, j.run = good, 0
	}
	j.run++
	switch {
	case good && j.run >= l.check.Success:
		m.publish(at, probe.Passing)
		j.held = at.kind == probe.Startup
	case !good && j.run >= l.check.Failure:
		m.publish(at, probe.Failing)
		j.held = at.kind != probe.Readiness
	}
	if j.held {
		j.run = 0
	}
}

func (m *model) record(step Step) {
	for at := range m.lines {
		m.play.count(at, step, m.lines[at].passed, m.lines[at].failed)
	}
	for _, c := range m.play.script.Containers {
		if m.instances[c.Name].number == 0 {
			continue
		}
		started := m.started(c.Name)
		j := m.lines[probeKey{m.play.script.Name, c.Name, probe.Readiness}]
		ready := started && (j == nil || j.verdict == probe.Passing && j.instance == m.instances[c.Name].number)
		m.play.add(c.Name, flagsOf(started, ready, m.instances[c.Name].phase == probe.Gone && m.play.script.showsEnd(&c, m.instances[c.Name])))
	}
}
