package engine

import (
	"maps"

	"github.com/sonde-probe/sonde/probe"
)

// maxInstanceText bounds the text of a reported instance, in bytes.
const maxInstanceText = 5 << 10

// Report tells the engine about the instance of a target. The target's driver, which
// starts and terminates its instances, calls it whenever the instance or its phase
// changes. For a target whose restarts are not observed, such as a network endpoint, set
// probe.Target.Static, or call it once with a running instance. Report may be called before or after the Apply that
// names the target. A repeated report changes nothing. A report without a target is
// ignored; one without an ID means that the target is absent.
//
// When Apply removes the last probe of a target, a Managed instance stays started and
// ready, or not, as it was, until it is reported again; one that is Retained stays, too. Any other
// instance is no longer a target; but if the target gets probes again before the instance was
// reported as Gone or Absent, it is probed as before. The engine keeps as many such
// instances as it has had probes, and at least 1024.
//
// A running instance gets the first attempts of its startup and readiness probes at
// Since plus each rule's initial delay. A failure counts only at a probe's regular
// times, which are a period apart; liveness waits for the first of them. An attempt in
// flight on an earlier instance is cancelled, and its result dropped.
//
// Without a report a target's probes are never attempted, and do not pass: the engine
// logs a warning about those that there are ten seconds after Run has begun, one for all such targets.
func (e *Engine) Report(in probe.Instance) {
	if in.Target == "" {
		return
	}
	if in.ID = probe.InstanceID(in.ID); in.ID == "" {
		in.Phase = probe.Absent
	}
	in.Detail = probe.CleanText(e.conf.Redact(in.Detail), maxInstanceText)
	if e.registry.hasReport(in, e.scheduler.clock) {
		return
	}
	e.scheduler.mu.Lock()
	defer e.scheduler.unlock()
	e.scheduler.setReported(in)
}

// setReported makes in the target's instance.
func (sc *scheduler) setReported(in probe.Instance) {
	t, isNew := sc.registry.reported(in)
	switch {
	case t == nil && isNew: // there is no such target, as before
		return
	case t == nil:
		sc.subscribers.notifyTarget(in.Target, probeRemoved)
		sc.summaries.updateDependents(in.Target)
		return
	case isNew:
		sc.subscribers.notifyTarget(in.Target, probeAdded)
	}
	sc.setInstance(t, in)
	sc.wakeIfEarlier()
}

// Label sets the labels that a target has while it has no probes; otherwise it has those of its
// probes. It may be called before the target is reported, at any time and by multiple goroutines.
// The engine forgets them when the target is removed. The error is a *probe.FieldError.
func (a Admin) Label(target string, labels map[string]string) error {
	if err := probe.CheckLabels(labels); err != nil {
		return err
	}
	sc := a.engine.scheduler
	sc.mu.Lock()
	defer sc.unlock()
	if sc.registry.label(target, maps.Clone(labels)) {
		sc.subscribers.notifyTarget(target, probeChanged)
	}
	return nil
}

// setInstance makes in the instance of a target.
func (sc *scheduler) setInstance(t *target, in probe.Instance) {
	before, now, state := t.current(), newInstance(in, sc.clock), t.currentState()
	// An instance that has started stays so, whatever probes it gets later.
	started := before.started
	if now.terminating && len(sc.registry.probesOf(t)) == 0 {
		started = before.hasStartedBare()
	}
	now.started = started && before.id == now.id || sc.registry.startupPassed(t, now)
	now.decided = t.isDecided(sc.registry.probesOf(t))
	t.instance.Store(now)
	sc.reconcileAll(t)
	sc.summaries.updateState(t)
	sc.summaries.recordInstance(t, before, state, sc.clock.Now())
	if before.id != now.id || before.phase != now.phase || before.restarts != now.restarts || !before.note.equal(now.note) {
		sc.subscribers.notifyTarget(in.Target, probeChanged)
	}
}

// Trigger asks for an attempt of a probe as soon as it may be made: not while the
// probe waits for something else (see Status.WaitReason), and after its attempt in
// flight, if there is one. Its success counts, its failure does not. The probe's
// regular times stay as they are. Trigger reports whether there is such a probe.
//
// Trigger may be called as often as one likes. An attempt that it asks for follows the one
// before after probe.MinPeriod at the earliest, and after a tenth of the period, if that is
// longer, if one of the two before was asked for by Trigger or Observe, too. A probe fails no
// earlier for it; and a run of n successes takes n-2 such tenths at least.
func (e *Engine) Trigger(id probe.ID) bool {
	s := e.registry.probe(id)
	if s == nil {
		return false
	}
	e.scheduler.mu.Lock()
	defer e.scheduler.unlock()
	e.scheduler.trigger(s, false)
	return true
}
