package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/engine/internal/schedule"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

// judged is the part of an attempt that is needed to judge its result, which may happen after the attempt has finished.
type judged struct {
	slot     *slot
	spec     *spec
	instance string // ID of the instance
	next     int64  // the probe's regular time after this attempt
	counts   bool   // a failure counts
	start    int64  // when the attempt began
	late     bool   // the last try ended after its deadline

	level  float64 // value for Rule.WarnOnRise; NaN if unknown
	uptime float64 // value for Rule.MaxRestarts; NaN if unknown

	// Claims of the handler that this machine lacked resources: see probe.Result.Denied. The worker sets claims and waived.
	waivedBefore uint8 // number of the probe's consecutive waived failures before this attempt
	claims       bool  // the handler makes a claim
	waived       bool  // a failure is unknown because of the claim
}

// attempt is an attempt in flight. It contains everything that the attempt needs, so that the slot can switch to another handler
// or instance without waiting for the attempt.
type attempt struct {
	judged
	lane      schedule.Lane // lane in which it occupies a place
	canceled  bool          // guarded by scheduler.mu
	unsettled bool          // it has finished, and its result is in isolation.unsettled
	asked     bool          // if unsettled: others were asked about it
	lostAsked int64         // if asked: the monitor's lost time when the wait for an answer began

	// Used by the loop, unless cancel is set. A worker needs only the Target.
	exchange

	// Used by a worker; set if a worker makes the attempt.
	ctx    context.Context
	cancel context.CancelFunc
	wake   func() // nil unless the handler is a probe.WakingHandler

	// lostBefore is the monitor's lost time at the end of the probe's previous attempt, if its handler may have kept a connection
	// since then; otherwise negative.
	lostBefore int64
}

// unsettledBy returns an attempt that has finished with the result res, and contains only the data needed to judge the result
// later.
func (a *attempt) unsettledBy(res *probe.Result) *attempt {
	u := &attempt{judged: a.judged, unsettled: true}
	u.Result = *res
	return u
}

// maxTries is the maximum number of tries of an attempt while its outcome is unknown (maxProbeRetries in
// k8s.io/kubernetes/pkg/kubelet/prober).
const maxTries = 3

// Once makes one attempt at p exactly as a running Engine does: with the rule's timeout for each try, with up to three tries
// while the outcome is unknown, and with a panic converted to an unknown outcome. It returns after the handler has returned. A
// probe.StatefulHandler makes the attempt without state from earlier attempts. A failure is unknown if this process was stopped
// or short of CPU time during the attempt.
func Once(ctx context.Context, p probe.Probe) probe.Result {
	p.Rule = p.Rule.WithDefaults()
	clock, m := clock.New(), new(health.Monitor)
	defer watch(m, clock, tickOf(&p.Rule))()
	if h, ok := p.Handler.(probe.StatefulHandler); ok {
		p.Handler = h.ForProbe()
		if c, ok := p.Handler.(io.Closer); ok {
			defer c.Close()
		}
	}
	a := &attempt{judged: judged{spec: &spec{definition: &definition{rule: p.Rule}, handler: p.Handler}}, ctx: ctx, wake: func() {}, lostBefore: -1}
	a.Target = p.Target
	res, _ := a.make(clock, m, func(detail string) string { return detail })
	return res
}

// watch reads the clock at each tick, as the loop of an engine does, so that the monitor detects stalls, until stop is called.
func watch(m *health.Monitor, c *clock.Clock, tick time.Duration) (stop func()) {
	look := func() { now := c.Now(); m.Await(now, now+int64(tick)) }
	look()
	ticker := time.NewTicker(tick)
	var ended sync.WaitGroup
	done := make(chan struct{})
	ended.Go(func() {
		for {
			select {
			case <-ticker.C:
				look()
			case <-done:
				return
			}
		}
	})
	return func() {
		ticker.Stop()
		close(done)
		ended.Wait()
	}
}

// make makes an attempt of a handler that may block, and returns the number of tries that panicked. redact removes secrets from
// the detail before it is truncated.
func (a *attempt) make(clock *clock.Clock, m *health.Monitor, redact func(detail string) string) (res probe.Result, panics int) {
	a.start = clock.Now()
	lostAtBegin, suspendedBefore := m.Observe(a.start), clock.Suspended()
	rule := &a.spec.rule
	begin, timeout := a.start, timeoutOf(rule, m, a.start, int(a.waivedBefore))
	for n := uint8(1); n <= maxTries; n++ {
		late, hasPanicked := false, false
		res, late, hasPanicked = a.call(timeout)
		a.late = late
		end := clock.Now()
		lost := m.Observe(end)
		lostByTry, lostByHandler := lost-lostAtBegin, int64(res.Lost)
		a.claims, a.waived = res.Denied || excusable(lostByHandler, timeout), false
		res.Lost = 0
		suspended := clock.Suspended()
		if suspended > suspendedBefore {
			late, res = false, excuseSuspended(res, suspended-suspendedBefore)
		}
		switch {
		case stalled(lostByTry, end-begin, timeout, rule):
			late, res = false, excuse(res, lostByTry, timeout)
		case notable(lostByTry, timeout) && passed(&res) && end-begin-lostByTry <= int64(timeout): // late only because of the stall
			late = false
		case a.mayWaive() && stalled(lostByHandler, end-begin, timeout, rule):
			before := res.Outcome
			late, res = false, excuseClaimed(res, lostByHandler, timeout)
			a.waived = res.Outcome != before
		case n == 1 && a.lostBefore >= 0 && notable(lost-a.lostBefore, timeout): // the peer may have closed the kept connection
			res = excuse(res, lost-a.lostBefore, timeout)
		}
		res = checked(res, timeout, late)
		if limitsLatency(rule) {
			res = judgeLatency(res, end-begin, lostByTry+lostByHandler, rule)
		}
		if a.measures(rule) {
			a.measureTime(end-begin, lostByTry+lostByHandler)
		}
		res = a.waiveDenied(res)
		res.Tries = n
		if hasPanicked {
			panics++
		}
		if res.Outcome != probe.Unknown || a.waived || a.ctx.Err() != nil || !maySucceedNow(&res, m, end) { // a retry would not help
			break
		}
		begin, lostAtBegin, suspendedBefore = end, lost, suspended
	}
	res.Took = time.Duration(clock.Now() - a.start)
	if res.Detail != "" {
		res.Detail = probe.CleanText(redact(res.Detail), probe.MaxDetail)
	}
	return res, panics
}

// call calls the handler once. It reports whether the handler returned after the timeout, and whether it panicked.
func (a *attempt) call(timeout time.Duration) (res probe.Result, late, hasPanicked bool) {
	ctx, cancel := context.WithTimeout(a.ctx, timeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			res, hasPanicked = panicked(r, debug.Stack()), true
		}
	}()
	if rule := &a.spec.rule; rule.WarnOnRise != "" && !a.measures(rule) || rule.MaxRestarts != 0 {
		var trace func() probe.Trace
		ctx, trace = probe.WithTrace(ctx)
		defer func() { a.measureNumbers(trace().Measured, rule) }()
	}
	if h, ok := a.spec.handler.(probe.WakingHandler); ok {
		res = h.ProbeWaking(ctx, a.Target, a.wake)
	} else {
		res = a.spec.handler.Probe(ctx, a.Target)
	}
	return res, errors.Is(ctx.Err(), context.DeadlineExceeded), false
}

// checked validates the result of a try. A success after the deadline becomes a failure, which the handler should have returned
// itself.
func checked(res probe.Result, timeout time.Duration, late bool) probe.Result {
	switch {
	case late && passed(&res):
		return probe.Fail(probe.ReasonTimeout, "success after the timeout of %v: %s", timeout, res.Detail)
	case res.Outcome > probe.Failure:
		return probe.Broken(reasonPanic, "handler returned the invalid outcome %s", fmt.Sprint(res.Outcome))
	}
	return res
}

func panicked(value any, stack []byte) probe.Result {
	return probe.Broken(reasonPanic, "handler panicked: %v\n%s", value, stack)
}
