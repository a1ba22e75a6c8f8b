package engine

import (
	"maps"

	"github.com/sonde-probe/sonde/probe"
)

// maxInstanceText bounds the text of a reported instance, in bytes.
const maxInstanceText = 5 << 10

// Report reports the instance of a target to the engine. The target's driver, which starts and terminates its instances, calls
// Report whenever the instance or its phase changes. For a target whose restarts are not observed, such as a network endpoint,
// set probe.Target.Static, or call Report once with a running instance. Report may be called before or after the Apply that adds
// the target. A repeated report changes nothing. A report without a target is ignored; a report without an ID means that the
// target is absent.
//
// When Apply removes the last probe of a target, a Managed instance remains a target, and keeps its started and ready state until
// its next report; so does a Retained one. Any other instance is no longer a target, but if the target gets probes again before
// the instance was reported as Gone or Absent, probing resumes as before. The engine keeps as many such instances as the maximum
// number of probes that it has had, and at least 1024.
//
// The first attempts of an instance's startup and readiness probes are due at its Since plus the initial delay of each rule. A
// failure counts only at a probe's regular times, which are one period apart; liveness probes wait for the first regular time. An
// attempt in flight on an earlier instance is canceled, and its result is discarded.
//
// Without a report, a target's probes are never attempted and do not pass. Ten seconds after Run has begun, the engine logs one
// warning about all such targets.
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

// setReported sets the instance of the target named in in, and adds or removes the target if necessary.
func (sc *scheduler) setReported(in probe.Instance) {
	t, isNew := sc.registry.reported(in)
	switch {
	case t == nil && isNew: // the target did not exist before either
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

// Label sets the labels that a target has while it has no probes; otherwise it has the labels of its probes. Label may be called
// at any time, even before the target is reported. The engine discards the labels when the target is removed. The error is a
// *probe.FieldError.
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

// setInstance sets the instance of an existing target.
func (sc *scheduler) setInstance(t *target, in probe.Instance) {
	before, now, state := t.current(), newInstance(in, sc.clock), t.currentState()
	// A started instance remains started, regardless of the probes that it gets later.
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

// Trigger requests an attempt of a probe as soon as possible: not while the probe waits for another reason (see
// Status.WaitReason), and not before its attempt in flight has finished. A success of that attempt counts, a failure does not.
// The probe's regular times do not change. Trigger reports whether the probe exists.
//
// Trigger may be called at any rate. A requested attempt is made at least probe.MinPeriod after the previous one. If one of the
// two previous attempts was itself requested by Trigger or Observe, it is made at least a tenth of the period after the previous
// one, if that is longer. Requested attempts never make a probe fail earlier, and a run of n successes takes at least n-2 such
// tenths.
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
