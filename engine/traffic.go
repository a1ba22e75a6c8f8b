package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Traffic is a gateway's count of its recent requests to a target.
type Traffic struct {
	By       string // name of the gateway: "edge-1"; up to 64 bytes
	Requests int    // number of requests sent
	Failures int    // number of them that failed, as defined for probe.Observation
	Detail   string // the failures in words; may be empty; up to 256 bytes
}

// Limits on traffic reports. They are not kept for the next engine, and are discarded if the handler or the address changes.
const (
	trafficFor     = time.Minute // validity of a report
	maxTraffic     = 16          // gateways for each target; the report of another one replaces the oldest
	maxTrafficBy   = 64          // bytes
	maxTrafficText = 256         // bytes

	// minFailed and minFailedShare are the number and the share of failed requests that contradict a passing probe.
	minFailed      = 3
	minFailedShare = 0.01
)

// reasonTraffic is the reason of a warning: attempts succeed, but gateways report failing requests.
const reasonTraffic probe.Reason = "gateway.gray"

// traffic is a Traffic and its time.
type traffic struct {
	Traffic
	at int64
}

// contradicts reports whether enough requests fail to contradict a passing probe.
func (t *traffic) contradicts(now int64) bool {
	return now-t.at < int64(trafficFor) && t.Failures >= minFailed && float64(t.Failures) >= minFailedShare*float64(t.Requests)
}

// ReportTraffic records a gateway's report about a target, and replaces its previous one. It returns false if the target has no
// readiness probe.
//
// A report never counts towards a threshold. While a report from the last minute has at least 3 failures, and at least 1% of its
// requests failed, successful attempts of the target's first readiness probe become warnings (gateway.gray) whose detail quotes
// the gateways and the probe. The target is then gray: degraded, but ready, in rotation and not restarted.
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

// isGray reports whether a gateway contradicts a passing probe.
func (r *rare) isGray(now int64) bool {
	return slices.ContainsFunc(r.traffic, func(t traffic) bool { return t.contradicts(now) })
}

// traffic turns a successful result into a warning while gateways contradict it. The detail quotes both sides.
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
		text := fmt.Sprintf("%s reports that %d of %d requests failed", cmp.Or(t.By, "a gateway"), t.Failures, t.Requests)
		if t.Detail != "" {
			text += " (" + t.Detail + ")"
		}
		all = append(all, text)
	}
	res.Outcome, res.Reason, res.Detail = probe.Warning, reasonTraffic, strings.Join(append(all, "the probe reports: "+cmp.Or(res.Detail, "success")), "; ")
}
