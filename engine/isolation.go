package engine

import (
	"net/netip"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/engine/internal/timeline"
	"github.com/sonde-probe/sonde/probe"
)

// isolation determines whether the engine is cut off from its targets or its name servers, and whether failures without a
// response count. scheduler.mu guards it.
//
// judge.count processes the result of each attempt. If a response is missing, health.Isolation judges whether the failure counts.
// The result is either concluded, as it is or with the reason engine.isolated, or becomes unsettled, in which case settle judges
// it again. If it would turn a verdict to failing, others may be asked first (opinion.go).
type isolation struct {
	addresses health.Isolation // isolation from targets
	names     health.Isolation // isolation from name servers
	plain     int              // number of members of addresses that need no name server
	log       isolationLog

	// unsettled has the finished attempts without a response whose results are pending, until their timeout has passed, or until
	// a Question is answered. They are the attempts in flight of their slots, whose keys are used here.
	unsettled timeline.Timeline
}

// maxCutOff bounds the time for which one attempt can make the engine count as cut off.
const maxCutOff = int64(10 * time.Minute)

// begin records that an attempt begins at now. No response is expected if the probe's previous attempt was ignored, so that many
// attempts that failed together are ignored only once.
func (i *isolation) begin(a *attempt, now int64) {
	s := a.slot
	a.late = false
	if s.flags.has(ignored) {
		return
	}
	if s.answered&nameServer != 0 {
		i.names.Begin(s.key, s.peer, now)
	}
	if s.answered&theTarget != 0 && (s.answered&nameServer == 0 || now >= i.names.Until()) {
		i.addresses.Begin(s.key, s.peer, now)
	}
}

// withdraw cancels the expectation of responses to the attempt of a probe.
func (i *isolation) withdraw(s *slot) {
	i.addresses.Withdraw(s.key)
	i.names.Withdraw(s.key)
}

// observe records the responses to an attempt.
func (i *isolation) observe(a *attempt, res *probe.Result, answered responders) {
	if answered&theTarget != 0 {
		i.addresses.Answer(a.start, a.start+int64(res.Took))
	}
	if answered&nameServer != 0 {
		i.names.Answer(a.start, a.start+int64(min(res.Timings.Resolve, res.Took)))
	}
}

// setAnswered sets who responded to a probe's latest attempt.
func (i *isolation) setAnswered(s *slot, by responders) {
	s.flags.set(ignored, false)
	if before := s.answered; before != by {
		s.answered = by
		i.join(by)
		i.leave(before)
	}
}

// join records that the given responders respond to a probe.
func (i *isolation) join(by responders) {
	i.plain += one(by == theTarget)
	if by&theTarget != 0 {
		i.addresses.Join()
	}
	if by&nameServer != 0 {
		i.names.Join()
	}
}

// leave records that the given responders no longer respond to a probe.
func (i *isolation) leave(by responders) {
	i.plain -= one(by == theTarget)
	if by&theTarget != 0 {
		i.addresses.Leave()
	}
	if by&nameServer != 0 {
		i.names.Leave()
	}
}

// forget discards the expectations of a probe, and ignores the responses to its attempt in flight.
func (i *isolation) forget(s *slot) {
	i.withdraw(s)
	i.setAnswered(s, 0)
}

// restore expects responses for a probe that passed in an earlier engine, if it has an EndpointHandler: attempts of a command may
// not use the network.
func (i *isolation) restore(s *slot, host string) {
	_, connects := s.spec.Load().handler.(probe.EndpointHandler)
	if !connects || s.peer == 0 || s.state.Verdict != probe.Passing {
		return
	}
	by := theTarget
	if s.spec.Load().isElsewhere() {
		by = 0
	}
	if isName(host) {
		by |= nameServer
	}
	i.setAnswered(s, by)
}

// isName reports whether a host is a name rather than an address.
func isName(host string) bool {
	_, err := netip.ParseAddr(host)
	return err != nil
}

// until returns until when the engine counts as cut off from targets with names, and from all targets. The latter depends on
// targets with addresses or, if none of them responds, on those with names.
func (i *isolation) until() (names, all int64) {
	names, all = i.names.Until(), i.addresses.Until()
	if i.plain == 0 {
		all = max(all, names)
	}
	return names, all
}

// judge determines which results count, and which become warnings. It needs scheduler.mu.
type judge struct{ sc *scheduler }

// count concludes the result of an attempt, or defers it until it is known whether the engine is cut off.
func (j judge) count(a *attempt, res *probe.Result, now int64) {
	s, i := a.slot, &j.sc.isolation
	if s.spec.Load().keepsState() {
		s.addRare().lost = j.sc.monitor.Observe(now)
	}
	if s.peer == 0 || res.Reason.BlamesEngine() {
		i.withdraw(s)
		j.sc.conclude(a, res, now)
		return
	}
	answered, missing := a.evidence(res)
	s.missing = missing
	i.observe(a, res, answered)
	switch missing {
	case 0:
		i.withdraw(s)
		i.setAnswered(s, answered)
		j.sc.conclude(a, res, now)
	case nameServer: // the target was not contacted
		i.addresses.Withdraw(s.key)
		j.weigh(a, res, now)
	default:
		j.weigh(a, res, now)
	}
	j.sc.publishIsolation(now)
}

// weigh concludes an attempt without a response, or defers it if there is not enough evidence yet.
func (j judge) weigh(a *attempt, res *probe.Result, now int64) {
	i, s := &j.sc.isolation, a.slot
	answered, missing := a.evidence(res)
	judgement := i.judge(a, res, missing, now)
	if judgement == health.Later {
		s.inflight = a.unsettledBy(res)
		i.unsettled.Set(s.key, a.start+int64(a.spec.rule.Timeout))
		return
	}
	i.unsettled.Remove(s.key)
	if judgement == health.CutOff {
		res.Outcome = probe.Unknown
		res.Detail = "engine isolated, result ignored: " + string(res.Reason) + ": " + res.Detail
		res.Reason = reasonIsolated
		s.flags.set(ignored, true)
		j.sc.conclude(a, res, now)
		return
	}
	if s.peer != 0 {
		i.setAnswered(s, answered)
	}
	if !j.overrule(a, res, now) && !j.seek(a, res, now) {
		j.sc.conclude(a, res, now)
	}
}

// judge returns whether an attempt without a response counts. Since name servers are reached over the network as well, many
// silent targets excuse failures of a few lookups.
func (i *isolation) judge(a *attempt, res *probe.Result, missing responders, now int64) (judgement health.Judgement) {
	s, rule := a.slot, &a.spec.rule
	if s.peer == 0 || rule.Compatibility == probe.Kubelet { // the peer may have become local since the attempt finished
		return health.Counts
	}
	_, longest := rule.Periods()
	wasAnswered := s.answered&missing != 0 && !s.flags.has(ignored)
	silence := health.Silence{
		Began: a.start, Timeout: int64(rule.Timeout),
		WasAnswered: wasAnswered,
		Repeated:    !wasAnswered && connectedInTime(&res.Timings, rule.Timeout),
		CutOffFor:   min(2*int64(longest)+int64(res.Took), maxCutOff),
	}
	if missing == nameServer {
		if judgement = i.names.Judge(silence, now); judgement == health.CutOff {
			return judgement
		}
	}
	if a.spec.isElsewhere() {
		return judgement
	}
	return max(judgement, i.addresses.Judge(silence, now))
}

// connectedInTime reports whether the target accepted a connection in the first half of the timeout: the network worked, and the
// target had time to respond. Slower attempts may have begun while the engine was cut off.
func connectedInTime(took *probe.Timings, timeout time.Duration) bool {
	return took.Connected && took.Resolve+took.Connect <= timeout/2
}

// settle judges the unsettled results that are due.
func (j judge) settle(now int64) {
	unsettled := &j.sc.isolation.unsettled
	for key, at, ok := unsettled.First(); ok && at <= now; key, at, ok = unsettled.First() {
		if a := j.sc.slots[key].inflight; a.asked {
			j.settleAsked(a, now)
		} else {
			j.weigh(a, &a.Result, now)
		}
	}
	j.sc.publishIsolation(now)
}

// isElsewhere reports whether attempts are made in another network namespace. Responses there, and their absence, are no evidence
// about the network of the engine.
func (sp *spec) isElsewhere() bool {
	return sp.target.Network != nil && sp.target.Network.Namespace != ""
}

// evidence is evidenceOf, but ignores responses of a target in another network namespace, where only name servers are in the
// engine's network.
func (a *attempt) evidence(res *probe.Result) (answered, missing responders) {
	answered, missing = evidenceOf(res, a.late)
	if a.spec.isElsewhere() {
		answered &^= theTarget
	}
	return answered, missing
}

// publishIsolation publishes whether the engine is isolated, and logs changes.
func (sc *scheduler) publishIsolation(now int64) {
	i := &sc.isolation
	names, all := i.until()
	if names != i.log.until[fromNames] || all != i.log.until[fromAll] {
		i.log.until[fromNames], i.log.until[fromAll] = names, all
		sc.monitor.SetIsolated(names, all)
	}
	sc.out.log(i.log.check(now))
}
