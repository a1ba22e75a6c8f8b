package engine

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/probe"
)

// isolation decides whether the engine is cut off from its targets, or from its name
// servers. scheduler.mu guards it.
type isolation struct {
	network health.Isolation // of addresses
	names   health.Isolation // of lookups
	logged  bool             // a line says that the engine is isolated
}

// begin says that an attempt begins of a target that has answered the latest one.
func (i *isolation) begin(address string) {
	if i.network.Begin(address); isName(address) {
		i.names.Begin(address)
	}
}

// isName reports whether the address of a target has to be looked up.
func isName(address string) bool {
	_, err := netip.ParseAddr(address)
	return err != nil
}

// isLocal reports whether a target's answers say nothing about the network.
func isLocal(address string) bool {
	return address == "" || address == "localhost" || address == "::1" || strings.HasPrefix(address, "127.")
}

// judgeSilence replaces the result of an attempt that has had no answer if that is because
// the engine is cut off. It notes whether the target has answered.
func (sc *scheduler) judgeSilence(a *attempt, res *probe.Result, now int64) {
	s, address, rule := a.slot, a.probe.Target.Address, &a.probe.Rule
	if isLocal(address) || res.Reason.BlamesEngine() {
		return
	}
	i, began, follows := &sc.isolation, now-int64(res.Took), 2*int64(rule.Period)
	var isolated bool
	switch evidenceOf(res, int64(rule.Timeout)) {
	case probe.Answered, probe.Interrupted:
		s.answered = true
		if i.network.Answer(now); isName(address) {
			i.names.Answer(now)
		}
		sc.setIsolated(now)
		return
	case probe.Silent:
		isolated = i.network.Silence(began, now, follows)
	case probe.NameUnanswered:
		isolated = i.names.Silence(began, now, follows)
	default:
		return
	}
	first := s.answered && res.Took < rule.Timeout/2
	switch {
	case sc.noIsolationCheck || rule.Compatibility == probe.Kubelet:
	case isolated:
		sc.setIsolated(now)
		res.Outcome = probe.Unknown
		res.Detail = "no target answers any more, this one neither (" + string(res.Reason) + "): " + res.Detail
		res.Reason = probe.ReasonIsolated
	case first && res.Outcome == probe.Failure: // what fails at once fails before there is any evidence about the others
		res.Outcome = probe.Unknown
		res.Detail = "for the first time, counts if it fails again: " + res.Detail
	}
	s.answered = s.answered && isolated
}

// evidenceOf returns what a result says about the network. A plugin's own reason says
// that the target answered if something was received.
func evidenceOf(res *probe.Result, timeout int64) probe.Evidence {
	evidence := res.Reason.Evidence()
	switch {
	case passed(res) && res.Timings != (probe.Timings{}):
		return probe.Answered
	case res.Outcome != probe.Failure || evidence != probe.NoEvidence:
		return evidence
	case res.Timings.FirstByte > 0:
		return probe.Answered
	case res.Timings.Connect > 0 || int64(res.Took) >= timeout && res.Reason != probe.ReasonExecTimeout:
		return probe.Silent
	}
	return probe.NoEvidence
}

// setIsolated publishes whether the engine is isolated, and logs a change.
func (sc *scheduler) setIsolated(now int64) {
	i, until := &sc.isolation, int64(0)
	for _, each := range []*health.Isolation{&i.network, &i.names} {
		until = max(until, each.Until())
	}
	isolated := now < until
	if !isolated && !i.logged {
		return
	}
	sc.monitor.setIsolatedUntil(until)
	if isolated != i.logged {
		i.logged = isolated
		sc.lines = append(sc.lines, isolationLine(isolated))
	}
}

// isolationLine says that the engine is cut off, or no longer.
type isolationLine bool

func (l isolationLine) write(to *slog.Logger) {
	if l {
		to.Log(context.Background(), slog.LevelError, "engine isolated: no target, or no name server, answers any more; targets do not fail for it")
	} else {
		to.Log(context.Background(), slog.LevelInfo, "engine no longer isolated")
	}
}
