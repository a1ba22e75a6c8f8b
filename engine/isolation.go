package engine

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/probe"
)

// isolation decides whether the engine is cut off from its targets, or from its name
// servers, and whether failures without an answer count. scheduler.mu guards it.
type isolation struct {
	byAddress health.Isolation // from targets that need no name server
	byName    health.Isolation // from targets that do
	lookups   health.Isolation // from name servers
	nameless  int64            // since when the engine is cut off from them, if it is: nothing is expected of byName
	silent    pending          // targets
	unnamed   pending          // lookups without an answer
	log       isolationLog
}

// responder is who answers an attempt over the network: none, one or both.
type responder uint8

const (
	theTarget responder = 1 << iota
	nameServer
)

// evidenceOf returns who has answered an attempt, and who should have answered and has
// not. Neither is known of handlers that say nothing about the network, such as exec. A
// plugin's own reason says that the target answered if something was received.
func evidenceOf(res *probe.Result, timeout time.Duration) (answered, missing responder) {
	evidence := res.Reason.Evidence()
	if res.Timings.Resolve > 0 && evidence != probe.NameUnanswered {
		answered = nameServer
	}
	switch evidence {
	case probe.Answered, probe.Interrupted:
		return answered | theTarget, 0
	case probe.NameAnswered:
		return answered, 0
	case probe.NameUnanswered:
		return answered, nameServer
	case probe.Silent:
		return answered, theTarget
	}
	switch {
	case passed(res) && res.Timings != (probe.Timings{}), res.Outcome == probe.Failure && res.Timings.FirstByte > 0:
		return answered | theTarget, 0
	case res.Outcome == probe.Failure && (res.Timings.Connect > 0 || res.Took >= timeout && res.Reason != probe.ReasonExecTimeout):
		return answered, theTarget
	}
	return answered, 0
}

// begin says that an attempt of a probe begins at now.
func (i *isolation) begin(s *slot, now int64) {
	if s.answered&nameServer != 0 {
		i.lookups.Begin(s.peer, now)
	}
	switch {
	case s.answered == theTarget:
		i.byAddress.Begin(s.peer, now)
	case s.answered == theTarget|nameServer && now >= i.lookups.Until():
		i.byName.Begin(s.peer, now)
	}
}

// observe takes the answers to an attempt.
func (i *isolation) observe(a *attempt, res *probe.Result, answered responder, now int64) {
	if answered&theTarget != 0 {
		at := a.start + int64(res.Took)
		i.byAddress.Answer(a.start, at)
		i.byName.Answer(a.start, at)
		i.silent.prove(a.start, now)
		i.unnamed.prove(a.start, now)
	}
	if answered&nameServer != 0 {
		i.lookups.Answer(a.start, a.start+int64(min(res.Timings.Resolve, res.Took)))
		i.unnamed.prove(a.start, now)
	}
}

// judgeTarget judges an attempt at now that its target has not answered.
func (i *isolation) judgeTarget(s health.Silence, now int64) health.Judgement {
	j := i.byAddress.Judge(s, now)
	if now >= i.lookups.Until() || s.Began < i.nameless {
		j = max(j, i.byName.Judge(s, now))
	}
	if j == health.CutOff {
		i.silent.due = now
	}
	return j
}

// judgeLookup judges an attempt at now that no name server has answered. They are reached
// over the network too.
func (i *isolation) judgeLookup(s health.Silence, now int64) health.Judgement {
	known := now < i.lookups.Until()
	j := i.lookups.Judge(s, now)
	if j == health.CutOff && !known {
		i.nameless = now
	}
	if j = max(j, i.byAddress.Judge(s, now)); j == health.CutOff {
		i.unnamed.due = now
	}
	return j
}

// setAnswered sets who has answered a probe's latest attempt.
func (i *isolation) setAnswered(s *slot, is responder) {
	if s.answered == is {
		return
	}
	for _, from := range i.joined(s.answered) {
		from.Leave(s.peer)
	}
	for _, to := range i.joined(is) {
		to.Join(s.peer)
	}
	s.answered = is
}

// restore expects answers of a probe that passed in an earlier engine.
func (i *isolation) restore(s *slot, address string) {
	if s.peer == 0 || s.state.Verdict != probe.Passing {
		return
	}
	by := theTarget
	if _, err := netip.ParseAddr(address); err != nil {
		by |= nameServer
	}
	i.setAnswered(s, by)
}

// withdraw says that an attempt of a probe that has been begun needed no network.
func (i *isolation) withdraw(s *slot) {
	for _, from := range i.joined(s.answered) {
		from.Withdraw()
	}
	i.setAnswered(s, 0)
}

// joined returns what probes have joined whose latest attempts were answered by these.
func (i *isolation) joined(by responder) []*health.Isolation {
	return [...][]*health.Isolation{
		theTarget: {&i.byAddress}, nameServer: {&i.lookups}, theTarget | nameServer: {&i.byName, &i.lookups},
	}[by]
}

// until returns when the engine no longer counts as cut off; 0 if it does not now.
func (i *isolation) until(now int64) int64 {
	if until := max(i.byAddress.Until(), i.byName.Until(), i.lookups.Until()); until > now {
		return until
	}
	return 0
}

// next returns when settle has to be called; never if there is nothing to wait for.
func (i *isolation) next() int64 { return min(i.silent.next(), i.unnamed.next(), i.log.next()) }

// pending are attempts whose results wait for evidence, in the order in which they ended.
// There is at most one of each probe.
type pending struct {
	attempts []*attempt
	due      int64 // when they are judged again
}

func (p *pending) next() int64 {
	if len(p.attempts) == 0 {
		return never
	}
	return p.due
}

func (p *pending) add(a *attempt) {
	at := a.start + int64(a.spec.rule.Timeout)
	if len(p.attempts) > 0 {
		at = min(at, p.due)
	}
	p.attempts, p.due = append(p.attempts, a), at
}

// settleDelay is how long answers are collected before they settle results that wait.
const settleDelay = int64(10 * time.Millisecond)

// prove says that an attempt which began at began was answered.
func (p *pending) prove(began, now int64) {
	if len(p.attempts) > 0 && p.attempts[0].ended() < began {
		p.due = min(p.due, now+settleDelay)
	}
}

// take removes and returns the attempts, if they are to be judged again now.
func (p *pending) take(now int64) (list []*attempt) {
	if p.next() <= now {
		list, p.attempts = p.attempts, nil
	}
	return list
}

// remove removes an attempt.
func (p *pending) remove(a *attempt) {
	if n := slices.Index(p.attempts, a); n >= 0 {
		p.attempts = slices.Delete(p.attempts, n, n+1)
	}
}

// count counts the result of an attempt, or puts that off until it is known whether the
// engine is cut off.
func (sc *scheduler) count(a *attempt, res *probe.Result, now int64) {
	s := a.slot
	if s.spec.Load().keepsState() {
		s.setLost(sc.monitor.observe(now))
	}
	if s.peer == 0 || res.Reason.BlamesEngine() {
		sc.conclude(a, res, now)
		return
	}
	answered, missing := evidenceOf(res, a.spec.rule.Timeout)
	sc.isolation.observe(a, res, answered, now)
	switch {
	case missing != 0:
		sc.judge(a, res, now)
		return
	case answered != 0:
		sc.isolation.setAnswered(s, answered)
		sc.publishIsolation(now)
	case passed(res) && s.answered != 0: // it may have been answered otherwise in an earlier engine
		sc.isolation.withdraw(s)
	}
	sc.conclude(a, res, now)
}

// judge concludes an attempt that lacks an answer, or lets its result wait.
func (sc *scheduler) judge(a *attempt, res *probe.Result, now int64) {
	i, s, rule := &sc.isolation, a.slot, &a.spec.rule
	answered, missing := evidenceOf(res, rule.Timeout)
	silence := health.Silence{
		Began: a.start, Ended: a.start + int64(res.Took), Timeout: int64(rule.Timeout),
		WasAnswered: s.answered&missing != 0, Excuses: 2*int64(rule.Period) + int64(res.Took),
	}
	judgement, waiting := health.Counts, &i.silent
	switch {
	case rule.Compatibility == probe.Kubelet:
	case missing == theTarget:
		judgement = i.judgeTarget(silence, now)
	default:
		judgement, waiting = i.judgeLookup(silence, now), &i.unnamed
	}
	switch judgement {
	case health.Later:
		s.inflight = a.waiting(res)
		waiting.add(s.inflight)
		return
	case health.CutOff:
		res.Outcome = probe.Unknown
		res.Detail = "engine isolated, result ignored: " + string(res.Reason) + ": " + res.Detail
		res.Reason = probe.ReasonIsolated
		sc.publishIsolation(now)
	case health.Counts:
		i.setAnswered(s, answered)
	}
	sc.conclude(a, res, now)
}

// settle judges the attempts that wait, if there is evidence or their time has come, and
// logs whether the engine is isolated.
func (sc *scheduler) settle(now int64) {
	i := &sc.isolation
	if i.next() > now {
		return
	}
	for _, a := range append(i.silent.take(now), i.unnamed.take(now)...) {
		if a.slot.inflight == a {
			sc.judge(a, &a.Result, now)
		}
	}
	if line := i.log.check(now); line != nil {
		sc.lines = append(sc.lines, line)
	}
}

// publishIsolation publishes whether the engine is isolated.
func (sc *scheduler) publishIsolation(now int64) {
	i := &sc.isolation
	if until := i.until(now); until != i.log.until {
		i.log.until = until
		sc.monitor.setIsolatedUntil(until)
	}
}

// isolationLogPeriod is the time in which at most one isolation is logged.
const isolationLogPeriod = int64(10 * time.Second)

// isolationLog says when to log that the engine is isolated, or no longer.
type isolationLog struct {
	until  int64 // the engine is isolated; 0 if it is not
	logged bool  // a line says that it is
	quiet  int64 // no line says so until then
}

// next returns when check has to be called; never if there is nothing to say.
func (l *isolationLog) next() int64 {
	switch {
	case l.logged:
		return l.until
	case l.until > l.quiet:
		return l.quiet
	}
	return never
}

// check returns the line that is due, or nil.
func (l *isolationLog) check(now int64) logLine {
	if l.next() > now {
		return nil
	}
	if now >= l.until {
		l.until = 0
	}
	isolated := l.until != 0
	if isolated == l.logged {
		return nil
	}
	if l.logged = isolated; isolated {
		l.quiet = now + isolationLogPeriod
	}
	return isolationLine(isolated)
}

// isolationLine says that the engine is cut off, or no longer.
type isolationLine bool

func (l isolationLine) write(to *slog.Logger) {
	if l {
		to.Log(context.Background(), slog.LevelError, "engine isolated: no target or name server answers; failures without an answer do not count")
	} else {
		to.Log(context.Background(), slog.LevelInfo, "engine no longer isolated")
	}
}
