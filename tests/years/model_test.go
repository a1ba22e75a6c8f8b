package years

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// model checks the laws. It knows the results of the attempts, and the publications and actions of the engine; it uses nothing from
// the product.
type model struct {
	story *story

	mu       sync.Mutex // guards all below; world.mu may be held
	probes   map[probe.ID]*ledger
	units    map[string]runs // of the targets that are started
	certain  time.Time       // everything published before is on the disk
	written  time.Time       // when the disk was last brought up to date, or slightly later
	unsure   bool            // it may have been brought up to date since, by an engine that was killed immediately
	counts   counts
	reported int
}

// counts are the numbers of events in a story.
type counts struct{ attempts, verdicts, restarts, kills, stops, reloads, resumed int }

func (c counts) String() string {
	return fmt.Sprintf("%d attempts, %d verdicts, %d restarts, %d kills, %d stops, %d reloads, %d probes resumed",
		c.attempts, c.verdicts, c.restarts, c.kills, c.stops, c.reloads, c.resumed)
}

// ledger is the model's state of one probe.
type ledger struct {
	flat
	begun time.Time // start of the probe
	since time.Time // attempts that began earlier do not count

	// Of the attempts at an instance.
	instance string
	fails    []failure // since the last success
	before   []failure // those before that success
	reset    time.Time // time of that success
	good     int32     // successes since the target last responded with a failure

	// With the policy "evidence", of the attempts at an instance since it failed or recovered.
	weighed   []failure // all failures
	successes int32     // since it failed
	unsure    bool      // there may have been others, and with another policy
	alarmed   bool      // it has failed by attempts at this instance

	// The published state.
	verdict probe.Verdict
	of      string // the instance
	changed time.Time
	moved   bool // moved to another address since

	relocated time.Time // when it last moved to another address
}

// failure is an attempt that failed through the target's own fault.
type failure struct {
	at     time.Time
	period time.Duration
}

func newModel(s *story) *model {
	m := &model{story: s, probes: map[probe.ID]*ledger{}, units: map[string]runs{}, certain: s.zero}
	return m
}

// broken reports that a law is broken.
func (m *model) broken(law, target, format string, a ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.brokenLocked(law, target, format, a...)
}

func (m *model) brokenLocked(law, target, format string, a ...any) {
	const most = 3
	if m.reported++; m.reported > most {
		return
	}
	s := m.story
	s.Errorf("story %d, after %v: law %q: %s: %s\nplay it again with: go test ./tests/years -seed %d\n%s\n", s.seed,
		time.Since(s.zero).Round(time.Millisecond), law, target, fmt.Sprintf(format, a...), s.seed, s.trace.about(target))
}

// edit records a change of the configuration, and returns the changes of probes.
func (m *model) edit(specs []*spec, running bool) (n engine.Changes) {
	after, now := flatten(specs), time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.units)
	for _, sp := range specs {
		if sp.how != static {
			m.units[sp.label] = runs{sp.how, sp.revision}
		}
	}
	for id := range m.probes {
		if _, ok := after[id]; !ok {
			delete(m.probes, id)
			n.Removed++
		}
	}
	for id, f := range after {
		l := m.probes[id]
		switch {
		case l == nil:
			n.Added++
			m.probes[id] = &ledger{flat: f, begun: now, since: now, changed: now}
			continue
		case l.address != f.address || l.variant != f.variant || l.worker != f.worker:
			n.Replaced++
			if l.unsure = true; running { // otherwise an engine only knows its address
				l.since, l.fails, l.before, l.good = now, nil, nil, 0
			}
			if l.address != f.address {
				l.moved, l.relocated = true, now
			}
		case l.rule != f.rule:
			n.Updated++
			l.unsure = l.unsure || l.rule.Policy != f.rule.Policy
		}
		l.flat = f
	}
	return n
}

// attempt records the result of a try. Excused means that its failure is not the target's fault.
func (m *model) attempt(at attempt, now time.Time, res *probe.Result, excused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.probes[at.id]
	if l == nil || at.life.isDead() || at.from.Before(l.since) {
		return
	}
	m.counts.attempts++
	failed := res.Outcome == probe.Failure
	if res.Outcome == probe.Unknown {
		failed = l.rule.OnError == probe.ErrorFails && res.Reason != probe.ReasonResources
	}
	word := res.Outcome.String()
	if excused {
		word = "excused"
	}
	m.story.trace.add(at.id.Target, at.id.Kind.String(), word+" "+string(res.Reason), int64(at.from.Sub(m.story.zero)))
	if at.instance != "" && at.instance != l.instance {
		l.instance, l.fails, l.before, l.good = at.instance, nil, nil, 0
		l.weighed, l.successes = nil, 0
	}
	switch {
	case res.Outcome == probe.Success || res.Outcome == probe.Warning:
		l.good++
		l.successes++
		if len(l.fails) > 0 {
			l.before, l.reset, l.fails = l.fails, now, nil
		}
	case failed && !excused:
		const enough = 64
		if l.weighed = append(l.weighed, failure{at.from, shortestPeriod(l.rule)}); len(l.weighed) > enough {
			l.weighed = slices.Delete(l.weighed, 0, enough/2)
		}
		if l.fails = append(l.fails, failure{at.from, shortestPeriod(l.rule)}); len(l.fails) > enough {
			l.fails = slices.Delete(l.fails, 0, enough/2)
		}
		if res.Reason == no.Reason || res.Reason == refused.Reason {
			l.good = 0
		}
	}
}

func shortestPeriod(r probe.Rule) time.Duration {
	shortest, _ := r.Periods()
	return shortest
}

// failures returns how many failures in a row may have counted.
func (l *ledger) failures(instance string) int32 {
	if l.instance != instance {
		return 0
	}
	return apart(l.fails)
}

// mayFail reports whether the attempts at an instance may have made the probe fail.
func (l *ledger) mayFail(instance string) bool {
	if l.rule.Policy != probe.PolicyEvidence {
		return l.failures(instance) >= l.rule.FailureThreshold
	}
	const least = (probe.MaxScore + probe.FailureWeight - 1) / probe.FailureWeight
	return l.unsure || l.instance == instance && apart(l.weighed) >= least
}

// mayPass reports whether the attempts at an instance may have made the probe pass. With the policy "evidence", a failed probe
// needs as many successes as its score has points.
func (l *ledger) mayPass(instance string) bool {
	switch {
	case l.instance != instance:
		return false
	case l.rule.Policy != probe.PolicyEvidence:
		return l.good >= l.rule.SuccessThreshold
	}
	return l.unsure || l.successes >= probe.MaxScore || l.successes > 0 && !(l.alarmed && l.of == instance)
}

// apart returns how many of the failures may have counted: those that are at least half a period apart.
func apart(all []failure) (n int32) {
	var last failure
	for _, f := range all {
		if n == 0 || f.at.Sub(last.at) >= min(f.period, last.period)/2 {
			last = f
			n++
		}
	}
	return n
}

// watch follows the engine's publications until ctx is done.
func (m *model) watch(ctx context.Context, l *life, changes *engine.Subscription) {
	defer changes.Close()
	for {
		st, err := changes.Next(ctx)
		if err != nil || l.isDead() {
			return
		}
		t, _ := l.engine.Target(st.ID.Target)
		m.publish(&st, t.Instance)
	}
}

// publish checks a verdict.
func (m *model) publish(st *engine.Status, in probe.Instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.probes[st.ID]
	if l == nil || st.Removed || st.Verdict == l.verdict && st.Instance == l.of {
		return
	}
	m.counts.verdicts++
	m.story.trace.note(st.ID.Target, st.ID.Kind.String(), "is "+st.Verdict.String()+" of "+st.Instance)
	same := st.Instance == l.of
	running := in.Phase == probe.Running && in.ID == st.Instance
	allowed := true
	switch st.Verdict {
	case probe.Failing:
		allowed = l.mayFail(st.Instance) || !running || st.ID.Kind == probe.Readiness && !same
	case probe.Passing:
		allowed = l.mayPass(st.Instance) ||
			st.ID.Kind == probe.Liveness && (!same || l.verdict != probe.Failing || l.moved)
	default:
		allowed = !same || l.moved || !running
	}
	if !allowed {
		m.brokenLocked("verdict", st.ID.Target, "%v is %v on %s after %d failures, and %d successes; its rule is %+v; before it was %v on %s",
			st.ID, st.Verdict, st.Instance, l.failures(st.Instance), l.good, l.rule, l.verdict, l.of)
	}
	if st.Verdict != probe.Passing || l.alarmed { // the first success passes, and keeps the score of the failures before it
		l.weighed, l.unsure = nil, false
	}
	if l.alarmed = st.Verdict == probe.Failing && same && running && st.Decided; l.alarmed {
		l.successes = 0
	}
	l.verdict, l.of, l.changed, l.moved = st.Verdict, st.Instance, time.Now(), false
}

// ends checks a request to end an instance.
func (m *model) ends(d *driver, in *instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := d.target.name
	if m.units[name] != d.runs || d.life.stopping() {
		return // it is no longer wanted
	}
	m.counts.restarts++
	m.story.trace.add(name, "restarted", in.id, 0)
	if in.ending == d.life && d.How != external {
		m.brokenLocked("once", name, "%s is to end a second time", in.id)
	}
	in.ending = d.life
	for _, k := range []probe.Kind{probe.Startup, probe.Liveness} {
		l := m.probes[probe.ID{Target: name, Kind: k}]
		if l != nil && (l.mayFail(in.id) || l.verdict == probe.Failing && l.of == in.id) {
			return
		}
	}
	m.brokenLocked("restart", name, "%s is to end, but none of its probes has failed", in.id)
}

// stopped records that the engine was stopped: everything is on the disk.
func (m *model) stopped() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.stops++
	m.certain, m.written, m.unsure = time.Now(), time.Now(), false
}

// killed records that the engine was killed. Its actions of the last seconds may be lost.
func (m *model) killed(l *life) {
	const unwritten = 3 * time.Second
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.kills++
	if m.unsure = time.Since(l.began) <= unwritten; !m.unsure {
		m.certain, m.written = time.Now().Add(-unwritten), time.Now()
	}
	for _, l := range m.probes {
		if l.reset.After(m.certain) {
			l.fails, l.before = append(l.before, l.fails...), nil
		}
	}
}

// resumed checks the state with which an engine resumes. Instances are those that continue.
func (m *model) resumed(l *life, instances map[string]string) {
	const spoilt = 40 * time.Second // how much older a torn file may be
	s, w := m.story, m.story.world
	w.mu.Lock()
	defer w.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	age := time.Since(m.written)
	recalled := s.keeps && s.resume != config.Forget && age < store.DefaultMaxAge-spoilt
	forgotten := !s.keeps || s.resume == config.Forget || age > store.DefaultMaxAge && !m.unsure
	answered := map[probe.ID]bool{} // those that the engine knows to have been answered
	for id, lg := range m.probes {
		// A crash may have lost the change, and the replacement of an instance outside the engine.
		mayBeLost := lg.changed.After(m.certain)
		goesOn := !forgotten && lg.of != "" && (instances[id.Target] == lg.of || mayBeLost && instances[id.Target] != "")
		switch {
		case !goesOn:
			*lg = ledger{flat: lg.flat, begun: lg.begun, since: time.Now(), changed: time.Now()}
		case !recalled || mayBeLost || lg.moved:
			m.accept(l, id, lg)
		default:
			m.counts.resumed++
			answered[id] = w.silence.answered[id] && lg.verdict == probe.Passing
			lg.alarmed = lg.alarmed && s.resume != config.Verify // Verify restarts scores
			if st, _ := l.engine.Status(id); st.Verdict != lg.verdict || st.Instance != lg.of {
				m.brokenLocked("flap", id.Target, "%v was %v on %s, and is %v on %s when the engine starts again", id, lg.verdict, lg.of, st.Verdict, st.Instance)
			}
		}
	}
	w.silence.reset(answered)
}

// movedTargets checks that verdicts about an old address are not kept for a new one.
func (m *model) movedTargets(l *life) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, lg := range m.probes {
		if !lg.since.Equal(time.Now()) || id.Kind != probe.Readiness || lg.good > 0 {
			continue
		}
		if st, _ := l.engine.Status(id); st.Verdict == probe.Passing && lg.relocated.Equal(lg.since) {
			m.brokenLocked("change", id.Target, "%v is still passing at %s, where nothing was attempted", id, lg.address)
		}
	}
}

// accept accepts the state with which an engine resumes, since the published state may have been lost.
func (m *model) accept(l *life, id probe.ID, lg *ledger) {
	st, _ := l.engine.Status(id)
	if lg.relocated.Equal(time.Now()) && id.Kind == probe.Readiness && st.Verdict == probe.Passing {
		m.brokenLocked("change", id.Target, "%v was moved to %s while the engine did not run, and is passing there", id, lg.address)
	}
	lg.verdict, lg.of, lg.changed, lg.moved, lg.unsure = st.Verdict, st.Instance, time.Now(), false, true
}

// Limits.
const (
	maxState      = 1<<20 + 256<<10 // bytes of the state file: its slack, and twice its contents
	maxHeap       = 48 << 20        // bytes in use
	maxGoroutines = 60              // plus some per target
	perTarget     = 6
)

// bounds checks the limits.
func (m *model) bounds(l *life) {
	st, w := l.engine.Stats(), m.story.world
	if want := len(l.probes) + 1; st.Probes != want {
		m.broken("bounds", "", "%d probes, want %d", st.Probes, want)
	}
	stateful, targets := 0, map[string]bool{}
	for id, p := range l.probes {
		if targets[id.Target] = true; p.worker {
			stateful++
		}
	}
	w.mu.Lock()
	open := w.open
	w.mu.Unlock()
	if most := stateful + st.InFlight; open > most || open < stateful {
		m.broken("bounds", "", "%d handlers are open, want %d to %d", open, stateful, most)
	}
	if n, most := runtime.NumGoroutine(), maxGoroutines+perTarget*len(targets); n > most {
		stacks := make([]byte, 16<<10)
		m.broken("bounds", "", "%d goroutines, at most %d are allowed\n%s", n, most, stacks[:runtime.Stack(stacks, true)])
	}
	if l.state == nil {
		return
	}
	if info, err := os.Stat(m.story.path()); err == nil && info.Size() > maxState {
		m.broken("bounds", "", "the state file has %d bytes, at most %d are allowed", info.Size(), maxState)
	}
}

// finally checks the laws that must hold after a long quiet time.
func (m *model) finally(l *life) {
	m.bounds(l)
	var mem runtime.MemStats
	runtime.GC()
	if runtime.ReadMemStats(&mem); mem.HeapAlloc > maxHeap {
		m.broken("bounds", "", "%d bytes are in use", mem.HeapAlloc)
	}
	w := m.story.world
	for id, p := range l.probes {
		st, _ := l.engine.Status(id)
		w.mu.Lock()
		t := w.known(id.Target)
		in := t.instance
		doomed := t.doomed[id.Kind] && (id.Kind == probe.Readiness || in != nil && in.how == static)
		w.mu.Unlock()
		want := probe.Passing
		switch {
		case in == nil && m.units[id.Target] != (runs{}) && m.policy(id.Target) == "always":
			m.broken("truth", id.Target, "no instance runs")
			continue
		case in == nil && id.Kind != probe.Readiness:
			continue
		case in == nil || doomed:
			want = probe.Failing
		case id.Kind == probe.Startup && st.Verdict == probe.Undecided && m.probes[id].begun.After(in.born):
			continue // an instance that has started stays so, whatever probes it gets later
		}
		if st.Verdict != want {
			m.broken("truth", id.Target, "%v is %v on %s, want %v; last %+v at %v, rule %+v, wait reason %v", id, st.Verdict, st.Instance, want, st.Result, st.ResultAt, p.rule, st.WaitReason)
		}
	}
}

func (m *model) policy(label string) string {
	for _, sp := range m.story.specs {
		if sp.label == label {
			return sp.policy
		}
	}
	return ""
}

// logged checks an error record. A record about an instance describes an action of its target.
func (m *model) logged(message, target, text string) {
	if strings.HasPrefix(message, "instance ") {
		m.story.trace.note(target, "log", text)
		return
	}
	w := m.story.world
	w.mu.Lock()
	last := w.cutOff.to
	if w.shortage.to.After(last) { // no response arrives then either
		last = w.shortage.to
	}
	w.mu.Unlock()
	if strings.HasPrefix(message, "engine isolated") && time.Now().Before(last.Add(10*time.Second)) {
		return
	}
	switch message { // faults of the target, not of the engine
	case "instance failed to start", "instance exited again, crash loop", "instance exited and is not restarted":
		return
	}
	m.broken("log", target, "%s", text)
}
