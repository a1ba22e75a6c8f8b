package restart

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// keeper makes the lives of one target, one after another. Everything is done
// in its own goroutine, keep; others only wake it.
type keeper struct {
	control *Controller
	target  string
	log     *slog.Logger
	wake    chan struct{} // capacity 1: look at the unit and at the probes

	unit  Unit           // as it is wanted
	in    probe.Instance // as reported last; ID is empty before that
	lives int32          // how many have begun
	ends  int            // how many lives in a row were short
	past  string         // how the life before ended, and its last words; empty when there was none
	cause probe.Reason   // likewise, as a code
}

func (c *Controller) newKeeper(target string) *keeper {
	return &keeper{control: c, target: target, log: c.config.Logger.With("target", target), wake: make(chan struct{}, 1)}
}

// keep cares for the target until nobody wants it. What is said last comes before
// the dismissal, so that a later keeper cannot be contradicted.
func (k *keeper) keep() {
	for gone := false; !gone; gone = k.control.dismiss(k.target) {
		for k.adopt() {
			k.supervise()
		}
		k.takeLeave()
	}
}

// adopt begins afresh with the unit that is wanted now, if there is one.
func (k *keeper) adopt() (wanted bool) {
	k.unit, wanted = k.control.unit(k.target)
	k.lives, k.ends = 0, 0
	return wanted
}

// takeLeave reports that nothing follows.
func (k *keeper) takeLeave() {
	if k.in.ID == "" || k.in.Phase == probe.Running || k.in.Phase == probe.Gone {
		return // nothing was said, or said already, or the life goes on without us
	}
	in := k.in
	in.Phase, in.Since, in.Reason, in.Detail = probe.Gone, time.Now(), k.cause, k.past
	k.report(in)
}

// kept takes over what Apply has adjusted, and reports whether the unit is still
// wanted as it is.
func (k *keeper) kept() bool {
	u, wanted := k.control.unit(k.target)
	if !wanted || !u.continues(k.unit) {
		return false
	}
	k.unit = u
	return true
}

// supervise makes lives until the unit is not wanted any more as it is.
func (k *keeper) supervise() {
	var notBefore time.Time
	for k.kept() {
		end := k.live(notBefore)
		if end.left {
			return
		}
		k.ends = k.unit.BackOff.count(k.ends, end.lasted)
		notBefore = time.Now().Add(k.unit.BackOff.wait(k.ends))
		switch {
		case !k.unit.Policy.follows(end.exit.Code, end.asked):
			k.reportEnd(end, probe.Gone, time.Time{})
			k.idle(end)
		case k.unit.external() && end.exit.Err == nil:
			k.reportEnd(end, probe.Ended, time.Time{})
		default:
			k.reportEnd(end, probe.Ended, notBefore)
			k.rest(notBefore)
		}
	}
}

// rest waits for the time, or until the unit is not kept as it is.
func (k *keeper) rest(until time.Time) {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	for k.kept() {
		select {
		case <-t.C:
			return
		case <-k.wake:
		}
	}
}

// idle waits until the unit is not kept as it is, or has a policy under which
// another life follows.
func (k *keeper) idle(end ending) {
	for k.kept() && !k.unit.Policy.follows(end.exit.Code, end.asked) {
		<-k.wake
	}
}

// noID is the ID of the life of a target that could not begin its first one.
const noID = "none"

// reportEnd reports that a life has ended, or could not begin, and whether
// another follows, not before the time.
func (k *keeper) reportEnd(end ending, phase probe.Phase, notBefore time.Time) {
	now := time.Now()
	wait := max(notBefore.Sub(now), 0)
	k.past, k.cause = end.detail(), end.reason()
	in := k.in
	in.Target, in.Phase, in.Since, in.Managed, in.Leaving = k.target, phase, now, false, false
	in.Reason, in.Detail = k.cause, k.past
	if wait > 0 {
		in.Detail = fmt.Sprintf("the next one begins at %s, after %v; %s", notBefore.UTC().Format(time.RFC3339), wait.Round(time.Second), k.past)
	}
	if wait > 0 && in.Reason != probe.ReasonNoStart {
		in.Reason = probe.ReasonBackOff
	}
	if in.ID == "" || in.ID == noID {
		in.ID = noID
		if phase == probe.Ended {
			in.Phase = probe.Waiting
		}
	}
	k.report(in)
	k.log.Info(end.event(), "instance", in.ID, "reason", k.cause, "restarts", in.Restarts, "exit", end.how(), "phase", in.Phase, "wait", wait.Round(time.Millisecond))
}

func (k *keeper) report(in probe.Instance) {
	k.in = in
	k.control.config.Engine.Report(in)
}

// ending is how a life ended.
type ending struct {
	exit   Exit
	began  bool
	asked  bool          // since a probe failed
	left   bool          // since the unit was not kept as it is
	lasted time.Duration // 0 for one that could not begin
}

func (e ending) reason() probe.Reason {
	switch {
	case !e.began && e.exit.Err != nil:
		return probe.ReasonNoStart
	case e.asked || e.left:
		return probe.ReasonEnded
	}
	return probe.ReasonExited
}

// event is what the log calls it.
func (e ending) event() string {
	if e.reason() == probe.ReasonNoStart {
		return "instance did not begin"
	}
	return "instance ended"
}

// how says for a person how the life ended.
func (e ending) how() string {
	if e.exit.Err != nil {
		return e.exit.Err.Error()
	}
	return fmt.Sprintf("exit status %d", e.exit.Code)
}

// detail is how, and the last words.
func (e ending) detail() string {
	if e.exit.LastWords == "" {
		return e.how()
	}
	return e.how() + ": " + e.exit.LastWords
}
