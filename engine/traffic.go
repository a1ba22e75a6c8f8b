package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Traffic is what a gateway says of the requests that it has sent to a target lately.
type Traffic struct {
	By       string // who says it: "edge-1"; up to 64 bytes
	Requests int    // how many it has sent
	Failures int    // how many of them have failed, as a probe.Observation fails
	Detail   string // how, in words; may be empty; up to 256 bytes
}

// Limits of what gateways say. What they say is forgotten with the engine, and if the handler or the address changes.
const (
	trafficFor     = time.Minute // for how long it holds
	maxTraffic     = 16          // gateways for each target; what another one says replaces the oldest
	maxTrafficBy   = 64          // bytes
	maxTrafficText = 256         // bytes

	// minFailed and minFailedShare are how many failures, and which share of the requests, contradict a probe that passes.
	minFailed      = 3
	minFailedShare = 0.01
)

// reasonTraffic is the reason of a warning: gateways say that requests fail, and attempts succeed.
const reasonTraffic probe.Reason = "gateway.gray"

// traffic is a Traffic, and when it was said.
type traffic struct {
	Traffic
	at int64
}

// contradicts reports whether so many requests fail that a target does not work for all.
func (t *traffic) contradicts(now int64) bool {
	return now-t.at < int64(trafficFor) && t.Failures >= minFailed && float64(t.Failures) >= minFailedShare*float64(t.Requests)
}

// ReportTraffic takes what a gateway says of a target, and replaces what that has said before. It reports whether there is a readiness
// probe of the target.
//
// It is never a step towards a threshold. If at least 3 requests, and 1 % of them, have failed in the last minute while attempts of the
// target's first readiness probe succeed, these are warnings (gateway.gray) that name who says what. So the target is gray: degraded, and
// ready, in rotation and not restarted.
func (a Admin) ReportTraffic(target string, t Traffic) bool {
	sc := a.engine.scheduler
	t.By, t.Detail = probe.OneLine(t.By, maxTrafficBy), probe.OneLine(a.engine.conf.Redact(t.Detail), maxTrafficText)
	sc.mu.Lock()
	defer sc.unlock()
	_, slots := a.engine.registry.target(target)
	i := slices.IndexFunc(slots, func(s *slot) bool { return s.kind == probe.Readiness })
	if i < 0 {
		return false
	}
	s, now := slots[i], sc.clock.Now()
	of := s.addRare()
	wasGray := of.isGray(now)
	of.traffic = slices.DeleteFunc(of.traffic, func(other traffic) bool { return other.By == t.By || now-other.at >= int64(trafficFor) })
	of.traffic = append(of.traffic[max(0, len(of.traffic)+1-maxTraffic):], traffic{t, now})
	if of.isGray(now) && !wasGray {
		sc.trigger(s, false)
	}
	sc.trafficUntil = now + int64(trafficFor)
	return true
}

// isGray reports whether a gateway contradicts a probe that passes.
func (r *rare) isGray(now int64) bool {
	return slices.ContainsFunc(r.traffic, func(t traffic) bool { return t.contradicts(now) })
}

// traffic makes the result of an attempt that has succeeded a warning while gateways contradict it, and says who says what.
func (j judge) traffic(s *slot, res *probe.Result, now int64) {
	if now >= j.sc.trafficUntil || res.Outcome != probe.Success {
		return
	}
	of := s.currentRare()
	if !of.isGray(now) {
		return
	}
	var all []string
	for _, t := range of.traffic {
		if !t.contradicts(now) {
			continue
		}
		text := fmt.Sprintf("%s says that %d of %d requests failed", cmp.Or(t.By, "a gateway"), t.Failures, t.Requests)
		if t.Detail != "" {
			text += " (" + t.Detail + ")"
		}
		all = append(all, text)
	}
	res.Outcome, res.Reason, res.Detail = probe.Warning, reasonTraffic, strings.Join(append(all, "the probe says: "+cmp.Or(res.Detail, "success")), "; ")
}
