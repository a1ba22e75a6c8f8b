package engine

import (
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// opinionTime is how long the engine waits for an answer to a Question, in addition to the timeout of the probe.
const opinionTime = time.Second

// Question asks whether a failure without a response counts, before it turns a verdict to failing: this engine may be cut off
// from some of its targets. See Owner.SeekOpinions.
type Question struct {
	Probe  probe.ID
	Result probe.Result  // the failure
	Within time.Duration // time after which the failure counts without an answer; longer if the engine is stalled meanwhile

	scheduler *scheduler
	attempt   *attempt
}

// Answer gives the opinion of others. If r passes, such as a warning that names the engines that reach the target, the engine
// publishes r instead of the failure, and also instead of the next failures without a response. When these reach the probe's
// failure threshold, it asks again. With any other opinion, or without one after the timeout of the probe plus a second, the
// failure counts. A later Answer has no effect. Answer is safe for concurrent use.
func (q Question) Answer(r probe.Result) {
	sc := q.scheduler
	r.Detail = probe.CleanText(sc.redact(r.Detail), probe.MaxDetail)
	sc.mu.Lock()
	defer sc.unlock()
	if q.isOpen() {
		judge{sc}.concludeAsked(q.attempt, &r, sc.clock.Now())
		sc.wakeIfEarlier()
	}
}

// IsOpen reports whether the engine waits for an answer. It is safe for concurrent use.
func (q Question) IsOpen() bool {
	q.scheduler.mu.Lock()
	defer q.scheduler.mu.Unlock()
	return q.isOpen()
}

// isOpen is IsOpen. It needs scheduler.mu.
func (q Question) isOpen() bool {
	return q.attempt.slot.inflight == q.attempt && q.scheduler.ctx.Err() == nil
}

// SeekOpinions makes the engine call ask before an attempt over a network that got no response turns the verdict of one of the
// owner's probes to failing: see Config.NoIsolationCheck. It does not call ask for rules with the compatibility probe.Kubelet.
// Until the answer, the verdict does not change, and the probe makes no attempts. ask must return immediately. If it returns
// false, the failure counts. It may call Question.Answer.
func (o *Owner) SeekOpinions(ask func(Question) (isAsked bool)) {
	sc := o.engine.scheduler
	sc.mu.Lock()
	defer sc.mu.Unlock()
	o.owner.ask = ask
}

// sought is the state of a probe's questions. scheduler.mu guards it.
type sought struct {
	overruled int32 // consecutive failures without a response that the latest opinion has overruled
	silent    int32 // failures without a response since the latest question, while the probe fails
	patience  int32 // number of these failures between two questions; 0 means the threshold
}

// maxPatience bounds sought.patience, in thresholds: questions about a target that has been down for a long time are rare.
const maxPatience = 8

// isDue counts a failure of a failing probe, and reports whether to ask about it: others may have reached the target again.
func (s *sought) isDue(threshold int32) bool {
	s.patience = max(s.patience, threshold)
	if s.silent++; s.silent < s.patience {
		return false
	}
	s.silent, s.patience = 0, min(2*s.patience, maxPatience*threshold)
	return true
}

// concludeOverruled publishes the passing result opinion instead of own, a failure without a response. For a failing probe it is
// a success. For a passing probe, own extends the run of failures until the next one would turn the verdict: that one does not
// count, and is asked about again. count is the number of failures that the opinion has overruled so far.
func (j judge) concludeOverruled(a *attempt, opinion, own *probe.Result, count int32, now int64) {
	r := *opinion
	r.Took, r.Timings, r.Tries = own.Took, own.Timings, own.Tries
	ev := j.sc.eventOf(a, &r)
	if a.slot.state.Verdict == probe.Passing {
		ev = j.sc.eventOf(a, own)
		ev.Extra = ev.Extra || j.wouldFail(a, own, now)
	}
	j.sc.concludeAs(a, &r, ev, now)
	a.slot.addRare().sought.overruled = count
}

// overrule concludes a failure without a response with the opinion that overruled an earlier failure of the probe, unless it is
// time to ask again. It reports whether it did.
func (j judge) overrule(a *attempt, own *probe.Result, now int64) bool {
	s := a.slot
	count := s.currentRare().sought.overruled
	if count == 0 || count >= a.spec.rule.FailureThreshold {
		return false
	}
	s.mu.Lock()
	latest := s.result
	s.mu.Unlock()
	if latest == nil || !passed(latest) { // the opinion was about another instance
		return false
	}
	j.concludeOverruled(a, latest, own, count+1, now)
	return true
}

// seek asks about a failure without a response, and reports whether the attempt waits for an answer.
func (j judge) seek(a *attempt, res *probe.Result, now int64) (waits bool) {
	s, ask := a.slot, a.spec.owner.ask
	switch {
	case ask == nil || a.spec.rule.Compatibility == probe.Kubelet || s.peer == 0 || !a.counts:
		return false
	case s.state.Verdict == probe.Failing && !s.addRare().sought.isDue(a.spec.rule.FailureThreshold):
		return false
	case s.state.Verdict != probe.Failing && !j.wouldFail(a, res, now):
		return false
	}
	asked := a.unsettledBy(res)
	asked.asked = true
	s.inflight = asked
	j.awaitOpinion(asked, now)
	q := Question{Probe: s.id(), Result: *res, Within: answerTime(a), scheduler: j.sc, attempt: asked}
	j.sc.out.ask(func() {
		if !ask(q) {
			q.Answer(q.Result)
		}
	})
	return true
}

// wouldFail reports whether the result of an attempt would turn the verdict of its probe to failing.
func (j judge) wouldFail(a *attempt, res *probe.Result, now int64) bool {
	after, next := verdict.Step(a.spec.rule, a.slot.state, j.sc.eventOf(a, res), j.sc.clock.Time(now))
	return next.Changed && after.Verdict == probe.Failing
}

// answerTime returns how long an attempt waits for an answer.
func answerTime(a *attempt) time.Duration { return a.spec.rule.Timeout + opinionTime }

// awaitOpinion schedules the time at which the failure of an attempt counts without an answer.
func (j judge) awaitOpinion(a *attempt, now int64) {
	a.lostAsked = j.sc.monitor.Observe(now)
	j.sc.isolation.unsettled.Set(a.slot.key, now+int64(answerTime(a)))
}

// settleAsked makes a failure count that was not answered in time. If the engine lost a notable part of that time to a stall, it
// waits once more.
func (j judge) settleAsked(a *attempt, now int64) {
	if notable(j.sc.monitor.Observe(now)-a.lostAsked, opinionTime) {
		j.awaitOpinion(a, now)
		return
	}
	j.concludeAsked(a, &a.Result, now)
}

// concludeAsked concludes an attempt with the answer, or without a passing one as a failure.
func (j judge) concludeAsked(a *attempt, res *probe.Result, now int64) {
	j.sc.isolation.unsettled.Remove(a.slot.key)
	if passed(res) {
		j.concludeOverruled(a, res, &a.Result, 1, now)
		return
	}
	j.sc.conclude(a, &a.Result, now)
}
