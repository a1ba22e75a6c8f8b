package engine

import (
	"net/netip"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/probe"
)

// isolation decides whether the engine is cut off from its targets, or from its name
// servers, and whether failures without an answer count. scheduler.mu guards it.
//
// scheduler.count takes the result of each attempt. If an answer is missing, judge asks
// health.Isolation whether the failure counts. The result is either concluded, as it is or
// as probe.ReasonIsolated, or unsettled: settle judges it again.
type isolation struct {
	byAddress  health.Isolation // from targets that need no name server
	byName     health.Isolation // from targets that do
	lookups    health.Isolation // from name servers
	namesSince int64            // since when the engine is cut off from name servers, if it is: nothing is expected of byName
	targets    unsettled        // attempts that a target has not answered
	names      unsettled        // attempts that no name server has answered
	log        isolationLog

	// silentSince has the probes of which an attempt was ignored since the last one with an
	// answer: the end of the first of these attempts, or of the last that counted after it.
	silentSince map[*slot]int64
}

// maxCutOff bounds for how long the engine counts as cut off because of one attempt.
const maxCutOff = int64(10 * time.Minute)

// begin notes that an attempt begins at now.
func (i *isolation) begin(a *attempt, now int64) {
	s := a.slot
	a.targetAwaited, a.lookupAwaited, a.othersAnswered, a.late = health.Awaited{}, health.Awaited{}, 0, false
	if since, silent := i.silentSince[s]; silent {
		if i.byAddress.AnsweredSince(since) {
			a.othersAnswered |= theTarget
		}
		if i.lookups.AnsweredSince(since) {
			a.othersAnswered |= nameServer
		}
	}
	if s.answered&nameServer != 0 {
		a.lookupAwaited = i.lookups.Begin(s.peer, now)
	}
	switch {
	case s.answered == theTarget:
		a.targetAwaited = i.byAddress.Begin(s.peer, now)
	case s.answered == theTarget|nameServer && now >= i.lookups.Until():
		a.targetAwaited = i.byName.Begin(s.peer, now)
	}
}

// withdraw no longer awaits answers to an attempt.
func (a *attempt) withdraw() {
	a.targetAwaited.Withdraw()
	a.lookupAwaited.Withdraw()
}

// observe takes the answers to an attempt.
func (i *isolation) observe(a *attempt, res *probe.Result, answered responders, now int64) {
	if answered&theTarget != 0 {
		at := a.start + int64(res.Took)
		i.byAddress.Answer(a.start, at)
		i.byName.Answer(a.start, at)
		i.targets.prove(a.start, now)
		i.names.prove(a.start, now)
	}
	if answered&nameServer != 0 {
		i.lookups.Answer(a.start, a.start+int64(min(res.Timings.Resolve, res.Took)))
		i.names.prove(a.start, now)
	}
}

// judgeTarget judges an attempt at now that its target has not answered.
func (i *isolation) judgeTarget(s health.Silence, now int64) health.Judgement {
	j := i.byAddress.Judge(s, now)
	if now >= i.lookups.Until() || s.Began < i.namesSince {
		j = max(j, i.byName.Judge(s, now))
	}
	if j == health.CutOff {
		i.targets.due = now
	}
	return j
}

// judgeLookup judges an attempt at now that no name server has answered. They are reached
// over the network too: others says whether other targets have answered meanwhile.
func (i *isolation) judgeLookup(s health.Silence, others bool, now int64) health.Judgement {
	known := now < i.lookups.Until()
	j := i.lookups.Judge(s, now)
	if j == health.CutOff && !known {
		i.namesSince = now
	}
	s.Repeated = others
	if j = max(j, i.byAddress.Judge(s, now)); j == health.CutOff {
		i.names.due = now
	}
	return j
}

// setAnswered sets who has answered a probe's latest attempt.
func (i *isolation) setAnswered(s *slot, by responders) {
	if s.answered == by {
		return
	}
	known := by
	if by&theTarget == 0 { // that may have been asked by its name
		known |= s.known()
	}
	i.setKnown(s, by, known)
}

// setKnown sets who has answered a probe's latest attempt, and who has answered it once.
func (i *isolation) setKnown(s *slot, by, known responders) {
	for _, from := range i.joined(s.answered) {
		from.Leave(s.peer)
	}
	if before := s.known(); known != before {
		for _, to := range i.joined(known) {
			to.Know(s.peer)
		}
		for _, from := range i.joined(before) { // last: a peer that is not known has no past
			from.Forget(s.peer)
		}
	}
	for _, to := range i.joined(by) {
		to.Join(s.peer)
	}
	s.answered = by
	s.setKnown(known)
}

// forget forgets what is known about a probe. The attempt in flight says nothing either.
func (i *isolation) forget(s *slot) {
	if s.inflight != nil {
		s.inflight.withdraw()
	}
	if s.known() != 0 {
		i.setKnown(s, 0, 0)
	}
	delete(i.silentSince, s)
}

// restore expects answers of a probe that passed in an earlier engine, if its handler says
// where it connects: attempts of a command need not say anything about the network.
func (i *isolation) restore(s *slot, host string) {
	_, connects := s.spec.Load().handler.(probe.EndpointHandler)
	if !connects || s.peer == 0 || s.state.Verdict != probe.Passing {
		return
	}
	by := theTarget
	if isName(host) {
		by |= nameServer
	}
	i.setAnswered(s, by)
}

// isName reports whether a host is a name, and not an address.
func isName(host string) bool {
	_, err := netip.ParseAddr(host)
	return err != nil
}

// joined returns what probes have joined that were answered by these.
func (i *isolation) joined(by responders) []*health.Isolation {
	return [...][]*health.Isolation{
		theTarget: {&i.byAddress}, nameServer: {&i.lookups}, theTarget | nameServer: {&i.byName, &i.lookups},
	}[by]
}

// until returns until when the engine counts as cut off from targets with names, and from
// all targets: from those with addresses or, if none of them answers, from those with names.
func (i *isolation) until() (names, all int64) {
	names, all = max(i.byName.Until(), i.lookups.Until()), i.byAddress.Until()
	if !i.byAddress.HasMembers() {
		all = max(all, names)
	}
	return names, all
}

// next returns when settle has to be called; never if there is nothing to wait for.
func (i *isolation) next() int64 { return min(i.targets.next(), i.names.next(), i.log.next()) }

// count counts the result of an attempt, or puts that off until it is known whether the
// engine is cut off.
func (sc *scheduler) count(a *attempt, res *probe.Result, now int64) {
	s, i := a.slot, &sc.isolation
	if s.spec.Load().keepsState() {
		s.setLost(sc.monitor.Observe(now))
	}
	if s.peer == 0 || res.Reason.BlamesEngine() {
		a.withdraw()
		sc.conclude(a, res, now)
		return
	}
	answered, missing := evidenceOf(res, a.late)
	s.missing = missing
	i.observe(a, res, answered, now)
	if missing != 0 {
		sc.judge(a, res, now)
	} else {
		a.withdraw()
		i.setAnswered(s, answered)
		if answered != 0 {
			delete(i.silentSince, s)
		}
		sc.conclude(a, res, now)
	}
	i.publish(sc.monitor, now)
}

// judge concludes an attempt that lacks an answer, unless that has to wait for evidence.
func (sc *scheduler) judge(a *attempt, res *probe.Result, now int64) health.Judgement {
	i, s := &sc.isolation, a.slot
	answered, missing := evidenceOf(res, a.late)
	ended, list := a.start+int64(res.Took), &i.targets
	if missing == nameServer {
		list = &i.names
	}
	judgement := i.judge(a, res, missing, now)
	if judgement == health.Later {
		if !a.unsettled {
			s.inflight = a.unsettledBy(res)
			list.add(s.inflight)
		}
		return judgement
	}
	list.remove(s.key)
	if judgement == health.CutOff {
		res.Outcome = probe.Unknown
		res.Detail = "engine isolated, result ignored: " + string(res.Reason) + ": " + res.Detail
		res.Reason = probe.ReasonIsolated
		if _, silent := i.silentSince[s]; !silent {
			i.silentSince[s] = ended
		}
	} else if s.peer != 0 {
		i.setAnswered(s, answered)
		if _, silent := i.silentSince[s]; silent { // or else one of this run may still be ignored
			i.silentSince[s] = ended
		}
	}
	sc.conclude(a, res, now)
	return judgement
}

// judge returns whether an attempt counts that lacks an answer.
func (i *isolation) judge(a *attempt, res *probe.Result, missing responders, now int64) health.Judgement {
	s, rule := a.slot, &a.spec.rule
	if s.peer == 0 || rule.Compatibility == probe.Kubelet { // it may have become local since it ended
		return health.Counts
	}
	_, silent := i.silentSince[s]
	_, longest := rule.Periods()
	silence := health.Silence{
		Began: a.start, Ended: a.start + int64(res.Took), Timeout: int64(rule.Timeout),
		WasAnswered: s.answered&missing != 0,
		Repeated:    a.othersAnswered&missing != 0 || silent && connectedInTime(&res.Timings, rule.Timeout),
		CutOffFor:   min(2*int64(longest)+int64(res.Took), maxCutOff),
	}
	if missing == theTarget {
		return i.judgeTarget(silence, now)
	}
	return i.judgeLookup(silence, a.othersAnswered&theTarget != 0, now)
}

// connectedInTime reports whether the target accepted a connection in the first half of the timeout: it had time to respond, by
// a network that worked. What connects later may have begun while the engine was cut off.
func connectedInTime(took *probe.Timings, timeout time.Duration) bool {
	return took.Connected && took.Resolve+took.Connect <= timeout/2
}

// settle judges unsettled results if there is evidence or their time has come, and logs
// whether the engine is isolated.
func (sc *scheduler) settle(now int64) {
	i := &sc.isolation
	if i.next() > now {
		return
	}
	for _, u := range [...]*unsettled{&i.targets, &i.names} {
		sc.settleByEvidence(u, now)
		for key, ok := u.expired(now); ok; key, ok = u.expired(now) {
			a := sc.slots[key].inflight
			sc.judge(a, &a.Result, now)
		}
	}
	i.publish(sc.monitor, now)
	sc.out.log(i.log.check(now))
}

// settleByEvidence judges unsettled results in the order in which they ended, until there
// is no evidence about one.
func (sc *scheduler) settleByEvidence(u *unsettled, now int64) {
	if u.due == 0 || u.due > now {
		return
	}
	u.due = 0
	for key, _, ok := u.ends.First(); ok; key, _, ok = u.ends.First() {
		a := sc.slots[key].inflight
		if sc.judge(a, &a.Result, now) == health.Later {
			return
		}
	}
}

// publish publishes whether the engine is isolated.
func (i *isolation) publish(to *health.Monitor, now int64) {
	names, all := i.until()
	if names != i.log.until[fromNames] || all != i.log.until[fromAll] {
		i.log.set(names, all, now)
		to.SetIsolated(names, all)
	}
}
