package engine

import (
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// opinionTime is how long the engine waits for an answer to a Question, beside the timeout of the probe.
const opinionTime = time.Second

// Question asks whether a failure counts that nobody has answered, before a verdict turns to failing because of it: this engine
// may be cut off from some of its targets. See Owner.SeekOpinions.
type Question struct {
	Probe  probe.ID
	Result probe.Result  // the failure
	Within time.Duration // which counts after this time, if there is no answer; later if the engine is stalled meanwhile

	scheduler *scheduler
	attempt   *attempt
}

// Answer gives the opinion of others. If it passes, such as a warning that says who reaches the target, the engine publishes it
// instead of the failure, and of the next failures without an answer, until these are as many as the probe's failure threshold:
// then it asks again. Any other opinion has the failure count, and so has none after the timeout of the probe and a second. A
// later Answer does nothing. Any goroutine may call it.
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

// IsOpen reports whether the engine waits for an answer. Any goroutine may call it.
func (q Question) IsOpen() bool {
	q.scheduler.mu.Lock()
	defer q.scheduler.mu.Unlock()
	return q.isOpen()
}

// isOpen is IsOpen. It needs scheduler.mu.
func (q Question) isOpen() bool {
	return q.attempt.slot.inflight == q.attempt && q.scheduler.ctx.Err() == nil
}

// SeekOpinions has the engine ask before a verdict of the owner's probes turns to failing because of an attempt that nobody has
// answered, over a network: see Config.NoIsolationCheck. Rules with the compatibility probe.Kubelet are not asked about. While the
// engine waits for the answer, the verdict stands, and the probe makes no attempt. Ask must return at once. If it returns false,
// the failure counts. It may call Question.Answer.
func (o *Owner) SeekOpinions(ask func(Question) (isAsked bool)) {
	sc := o.engine.scheduler
	sc.mu.Lock()
	defer sc.mu.Unlock()
	o.owner.ask = ask
}

// sought is what a probe has asked others. scheduler.mu guards it.
type sought struct {
	overruled int32 // failures in a row without an answer that the latest opinion has overruled
	silent    int32 // failures without an answer since the latest question, of a probe that fails
	patience  int32 // as many of these are between two questions; 0: as many as the threshold says
}

// maxPatience bounds sought.patience, in thresholds: what is down for long is asked about seldom.
const maxPatience = 8

// isDue counts a failure of a probe that fails already, and reports whether to ask about it: others may have reached the target again.
func (s *sought) isDue(threshold int32) bool {
	s.patience = max(s.patience, threshold)
	if s.silent++; s.silent < s.patience {
		return false
	}
	s.silent, s.patience = 0, min(2*s.patience, maxPatience*threshold)
	return true
}

// concludeOverruled publishes a result that passes instead of a failure without an answer. To a probe that fails it is a success. The
// run of failures of one that passes grows until the next one would turn the verdict: that one is asked about again, and fails it
// unless it is overruled. Count is how many failures the opinion has overruled by now.
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

// overrule concludes a failure without an answer of a probe of which an earlier one was overruled, as that was, unless it is
// time to ask again. It reports whether it has.
func (j judge) overrule(a *attempt, own *probe.Result, now int64) bool {
	s := a.slot
	count := s.currentRare().sought.overruled
	if count == 0 || count >= a.spec.rule.FailureThreshold {
		return false
	}
	s.mu.Lock()
	latest := s.result
	s.mu.Unlock()
	if latest == nil || !passed(latest) { // it was about another instance
		return false
	}
	j.concludeOverruled(a, latest, own, count+1, now)
	return true
}

// seek asks about a failure without an answer, and reports whether the attempt waits for that.
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

// wouldFail reports whether the result of an attempt turns the verdict of its probe to failing.
func (j judge) wouldFail(a *attempt, res *probe.Result, now int64) bool {
	after, next := verdict.Step(a.spec.rule, a.slot.state, j.sc.eventOf(a, res), j.sc.clock.Time(now))
	return next.Changed && after.Verdict == probe.Failing
}

// answerTime is how long an attempt waits for an answer.
func answerTime(a *attempt) time.Duration { return a.spec.rule.Timeout + opinionTime }

// awaitOpinion makes an attempt that was asked about due when its failure counts without an answer.
func (j judge) awaitOpinion(a *attempt, now int64) {
	a.lostAsked = j.sc.monitor.Observe(now)
	j.sc.isolation.unsettled.Set(a.slot.key, now+int64(answerTime(a)))
}

// settleAsked has a failure count to which there was no answer in time. What the engine has lost of that time to a stall it
// waits once more.
func (j judge) settleAsked(a *attempt, now int64) {
	if notable(j.sc.monitor.Observe(now)-a.lostAsked, opinionTime) {
		j.awaitOpinion(a, now)
		return
	}
	j.concludeAsked(a, &a.Result, now)
}

// concludeAsked concludes an attempt that was asked about with the result that counts.
func (j judge) concludeAsked(a *attempt, res *probe.Result, now int64) {
	j.sc.isolation.unsettled.Remove(a.slot.key)
	if passed(res) {
		j.concludeOverruled(a, res, &a.Result, 1, now)
		return
	}
	j.sc.conclude(a, &a.Result, now)
}
