package verdict_test

import (
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// difference is an intentional difference between Sonde and the kubelet.
type difference struct {
	k       string // number in docs/kubelet.md
	kubelet string // behavior of the kubelet
	sonde   string // behavior of Sonde
	reason  string
	mended  bool // with compatibility = "kubelet", Sonde behaves like the kubelet
}

// The indexes of byDesign.
const (
	seesChangesInFlight = iota
	outlivesInstances
	startsRunsAfresh
	learnsNothingFromStopped
	beginsAgain
	deletedIsNotStarted
	holdsOnlyWithDriver
	extraFailuresDoNotCount
	errorsMayFail
	weighsOutcomes
	isReloaded
	forgetsMovedAddresses
	trustsItsState
	verifiesItsState
	forgetsItsState
)

// byDesign lists all differences between Step and the kubelet's worker. TestEachDifferenceIsNeeded proves that the two differ in
// each of them, and TestEveryReachableStateAgreesWithTheKubeletsWorker that they differ in nothing else. docs/states.md has the
// table.
var byDesign = [...]difference{
	seesChangesInFlight: {k: "K9",
		kubelet: "while an attempt is under way the worker sees no change, and its result counts, whatever happened meanwhile",
		sonde:   "changes are seen at once; the result is dropped if the instance was replaced or stopped",
		reason:  "such a result says nothing about what runs now"},
	outlivesInstances: {k: "K11",
		kubelet: "the worker ends with the pod or its last container",
		sonde:   "the probe waits for another instance",
		reason:  "a target of a configuration can be started again"},
	startsRunsAfresh: {k: "K48", mended: true,
		kubelet: "a run goes on with the next container",
		sonde:   "each instance begins with a run of 0",
		reason:  "failures of one instance are no reason to restart the next"},
	learnsNothingFromStopped: {k: "K37", mended: true,
		kubelet: "liveness fails while the container does not run",
		sonde:   "liveness is undecided while the instance does not run",
		reason:  "nothing was learnt about liveness"},
	beginsAgain: {k: "K143", mended: true,
		kubelet: "a container that runs again keeps the failure of K37 until a probe decides",
		sonde:   "an instance that runs again has the verdict that an instance has at first",
		reason:  "the failure could restart an instance that was never probed"},
	deletedIsNotStarted: {k: "K99", mended: true,
		kubelet: "a startup probe passes when the pod is being deleted",
		sonde:   "a startup probe keeps its verdict when the instance is being terminated",
		reason:  "an instance that never started is not ready"},
	holdsOnlyWithDriver: {k: "K49",
		kubelet: "a startup or liveness probe that fails is held until the container was replaced",
		sonde:   "it is held only where a driver replaces the instance",
		reason:  "a target that is only observed would never recover"},
	extraFailuresDoNotCount: {k: "K25",
		kubelet: "each attempt counts, at a tick or triggered",
		sonde:   "the failure of an extra attempt does not count, and only ends a run of successes",
		reason:  "failures that count are a period apart, so that no instance is restarted early"},
	errorsMayFail: {k: "K41",
		kubelet: "an attempt that could not be made never counts",
		sonde:   "with `on_error = \"fail\"` it counts as a failure, unless the engine is the cause",
		reason:  "a check that cannot be made may have to fail"},
	weighsOutcomes: {k: "K46",
		kubelet: "as many equal results in a row as a threshold decide",
		sonde:   "with `policy = \"evidence\"` a score decides, to which a failure adds 5 and from which a success takes 1",
		reason:  "a target that fails a part of its attempts is found"},
	isReloaded: {k: "K6",
		kubelet: "a worker keeps the probe that it was created with",
		sonde:   "thresholds change in place; another handler starts a new run, and ends the hold of a probe that failed",
		reason:  "a configuration is reloaded without a gap"},
	forgetsMovedAddresses: {k: "K111",
		kubelet: "the verdict stands when the pod's IP changes",
		sonde:   "startup and readiness are undecided, and liveness passes, when the address changes",
		reason:  "nothing is known about the other address"},
	trustsItsState: {k: "K164",
		kubelet: "a restarted kubelet has no runs and no failures; readiness stands, and so does a startup probe that passed",
		sonde:   "`resume = \"trust\"`: verdicts, runs and holds go on",
		reason:  "a restart of the engine changes nothing"},
	verifiesItsState: {k: "K164",
		kubelet: "the same",
		sonde:   "`resume = \"verify\"`: verdicts go on, runs start again, and a probe that failed is not held",
		reason:  "what happened meanwhile is found out"},
	forgetsItsState: {k: "K164",
		kubelet: "the same",
		sonde:   "`resume = \"forget\"`, or no `state`: the probe is new",
		reason:  "the user wants it so"},
}

// kubeletWorker is a model of the kubelet's worker of one probe, written from docs/kubelet.md. It shares no code with Step.
// Without differences it behaves like the kubelet, with them like Sonde.
type kubeletWorker struct {
	container string // container that is judged; empty before the first
	published byte   // content of the results cache: 's', 'f', 'u' for Unknown, 0 for nothing
	succeeded bool   // results of the run; true before the first
	run       int32
	onHold    bool
	left      bool   // the worker has exited
	down      bool   // published because the container does not run
	attempt   string // container of the attempt in flight; empty if there is none

	// With the policy "evidence", the two sums that decide: the first one can make the probe fail, and after that, the second one
	// can make it pass.
	againstTarget, forTarget int
	failed                   bool
	policy                   probe.Policy // of the latest attempt that counted

	rule probe.Rule // the thresholds
}

// model is the behavior of a worker: that of the kubelet, except for the differences of byDesign.
type model struct {
	kind  probe.Kind
	lacks int // difference that the model lacks; none if it has all
}

const none = -1

// does reports whether a worker behaves like Sonde, rather than like the kubelet, with respect to a difference.
func (m *model) does(w *kubeletWorker, difference int) bool {
	return difference != m.lacks && (w.rule.Compatibility == probe.Mended || !byDesign[difference].mended)
}

func (m *model) initial() byte {
	return map[probe.Kind]byte{probe.Startup: 'u', probe.Readiness: 'f', probe.Liveness: 's'}[m.kind]
}

// tick is the first half of doProbe, up to the attempt.
func (m *model) tick(w *kubeletWorker, e *event) {
	blind := w.attempt != "" && !m.does(w, seesChangesInFlight)
	if blind || w.left || e.phase == probe.Absent || e.instance == "" { // K9, K11, K31, K33
		return
	}
	m.adopt(w, e.instance)
	if w.onHold && w.published == 'f' && !e.managed && m.does(w, holdsOnlyWithDriver) {
		w.onHold = false
	}
	if w.onHold { // K36
		return
	}
	if e.phase != probe.Running { // K37
		w.left = e.phase == probe.Gone && !m.does(w, outlivesInstances)
		w.down = m.does(w, beginsAgain)
		w.published = 'f'
		if m.kind == probe.Liveness && m.does(w, learnsNothingFromStopped) {
			w.published = 'u'
		}
		return
	}
	if w.down {
		w.published, w.down = m.initial(), false
	}
	switch {
	case e.terminating && m.kind != probe.Readiness: // K38
		w.left = !m.does(w, outlivesInstances)
		if m.kind == probe.Liveness || !m.does(w, deletedIsNotStarted) {
			w.published = 's'
		}
	case e.young, e.started == (m.kind == probe.Startup): // K39, K40
	default:
		w.attempt = w.container
	}
}

// adopt switches the worker to another container (K34).
func (m *model) adopt(w *kubeletWorker, container string) {
	if w.container == container {
		return
	}
	w.container, w.published, w.onHold, w.down = container, m.initial(), false, false
	if m.does(w, startsRunsAfresh) {
		w.forget()
	}
}

// forget restarts the count.
func (w *kubeletWorker) forget() {
	w.succeeded, w.run, w.againstTarget, w.forTarget, w.failed, w.policy = true, 0, 0, 0, false, probe.PolicyRuns
}

// result is the second half of doProbe, after the attempt.
func (m *model) result(w *kubeletWorker, e *event) {
	isOther := w.attempt != w.container
	w.attempt = ""
	isLate := isOther || w.onHold || w.down || e.terminating && m.kind != probe.Readiness
	if isLate && m.does(w, seesChangesInFlight) {
		return
	}
	succeeded := e.outcome == probe.Success || e.outcome == probe.Warning                                            // K45
	if e.outcome == probe.Unknown && (e.ours || w.rule.OnError == probe.ErrorIgnored || !m.does(w, errorsMayFail)) { // K41
		return
	}
	w.follow()
	weighs := w.rule.Policy == probe.PolicyEvidence && m.does(w, weighsOutcomes)
	if e.extra && !succeeded && m.does(w, extraFailuresDoNotCount) {
		if w.succeeded {
			w.run = 0
		}
		return
	}
	if weighs {
		if decided := w.weigh(succeeded); !decided {
			return
		}
		w.decide(m, e, !w.failed)
		return
	}
	if w.succeeded != succeeded {
		w.succeeded, w.run = succeeded, 0
	}
	w.run++
	if w.run < w.threshold() { // K46
		return
	}
	w.decide(m, e, succeeded)
}

// decide publishes the verdict that attempts have decided.
func (w *kubeletWorker) decide(m *model, e *event, passes bool) {
	w.published = letter(passes)
	managed := e.managed || !m.does(w, holdsOnlyWithDriver)
	if m.kind == probe.Startup && passes || m.kind != probe.Readiness && !passes && managed { // K49
		w.onHold, w.run = true, 0
		if w.rule.Compatibility == probe.Kubelet {
			w.againstTarget, w.forTarget, w.failed = 0, 0, false
		}
	}
}

// weigh counts an outcome by the policy "evidence", and reports whether it decides. A failure decides only if the probe has
// failed.
func (w *kubeletWorker) weigh(succeeded bool) (decided bool) {
	switch {
	case w.failed && succeeded:
		w.forTarget++
	case w.failed:
		w.forTarget = max(0, w.forTarget-5)
	case succeeded:
		w.againstTarget = max(0, w.againstTarget-1)
	default:
		w.againstTarget += 5
	}
	switch {
	case w.failed && w.forTarget == 20:
		w.failed, w.forTarget = false, 0
	case !w.failed && w.againstTarget >= 20:
		w.failed, w.againstTarget = true, 0
	}
	return succeeded || w.failed
}

// threshold returns the length of a run that decides.
func (w *kubeletWorker) threshold() int32 {
	if w.succeeded {
		return w.rule.SuccessThreshold
	}
	return w.rule.FailureThreshold
}

// letter returns the letter of the published state of a probe.
func letter(passes bool) byte {
	if passes {
		return 's'
	}
	return 'f'
}

// reload models a change of the configuration.
func (m *model) reload(w *kubeletWorker, r probe.Rule, what eventType) {
	if !m.does(w, isReloaded) {
		return
	}
	w.rule = r
	if what != reloaded {
		m.renew(w)
	}
	if what == moved && m.does(w, forgetsMovedAddresses) && w.container != "" && !w.onHold && !w.down {
		w.published = 'u'
		if m.kind == probe.Liveness {
			w.published = 's'
		}
	}
}

// follow discards the count of another policy than that of the rule.
func (w *kubeletWorker) follow() {
	if w.rule.Policy != w.policy {
		w.forget()
		w.policy = w.rule.Policy
	}
}

// renew starts a new run, and ends the hold of a failed probe.
func (m *model) renew(w *kubeletWorker) {
	w.forget()
	w.attempt = ""
	w.onHold = w.onHold && w.published == 's'
}

// restart models a restart of the kubelet, or of Sonde's engine.
func (m *model) restart(w *kubeletWorker, r probe.Rule, what eventType) {
	w.rule = r
	fresh := kubeletWorker{succeeded: true, rule: r}
	switch {
	case what == trusted && m.does(w, trustsItsState):
		w.attempt = ""
		if w.container != "" {
			w.follow()
		}
		if w.rule.Policy == probe.PolicyRuns && w.published != letter(w.succeeded) { // the stored run has not reached the threshold
			w.run = min(w.run, w.threshold()-1)
		}
		return
	case what == verified && m.does(w, verifiesItsState):
		m.renew(w)
		return
	case what == forgotten && m.does(w, forgetsItsState):
	case w.container == "":
	default: // K164, K166
		fresh.container, fresh.published = w.container, m.initial()
		if m.kind == probe.Readiness || m.kind == probe.Startup && w.published == 's' {
			fresh.published = w.published
		}
	}
	*w = fresh
}

// letterOf returns the content of the kubelet's cache for a state of Step.
func letterOf(s verdict.State) byte {
	if s.Instance == "" {
		return 0 // nothing has been published yet
	}
	return map[probe.Verdict]byte{probe.Undecided: 'u', probe.Passing: 's', probe.Failing: 'f'}[s.Verdict]
}
