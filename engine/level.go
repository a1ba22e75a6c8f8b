package engine

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// measures reports whether the rule watches the duration of attempts.
func (*judged) measures(r *probe.Rule) bool { return r.WarnOnRise == probe.RiseOfLatency }

// measureTime records the duration of a try. If more than a quarter of it was lost to stalls of the engine, it records NaN.
func (j *judged) measureTime(took, lost int64) {
	if j.level = math.NaN(); lost <= took/4 {
		j.level = time.Duration(took - lost).Seconds()
	}
}

// measureNumbers records the numbers that the handler measured.
func (j *judged) measureNumbers(all map[string]float64, r *probe.Rule) {
	number := func(name string) float64 {
		if n, isKnown := all[name]; isKnown {
			return n
		}
		return math.NaN()
	}
	j.uptime = number(probe.Uptime)
	if !j.measures(r) {
		j.level = number(r.WarnOnRise)
	}
}

// restarts has the times at which the process of a target was restarted, according to its uptime.
type restarts struct {
	uptime float64 // latest value
	at     []int64 // times of the latest restarts, the oldest first
}

// restartsWithin is the period in which restarts are counted. maxRestartsKept bounds the recorded restarts: one more than the
// maximum of Rule.MaxRestarts.
const (
	restartsWithin  = 5 * time.Minute
	maxRestartsKept = 101
)

// restarts turns a successful result into a warning if the uptime of the target has fallen too often.
func (j judge) restarts(a *attempt, res *probe.Result, now int64) {
	most := int(a.spec.rule.MaxRestarts)
	if most == 0 || !passed(res) {
		return
	}
	of := a.slot.addRare()
	if of.restarts == nil {
		of.restarts = &restarts{uptime: math.NaN()}
	}
	r := of.restarts
	r.at = slices.DeleteFunc(r.at, func(at int64) bool { return now-at > int64(restartsWithin) })
	if a.uptime < r.uptime {
		r.at = append(r.at[max(0, len(r.at)-maxRestartsKept+1):], now)
	}
	if !math.IsNaN(a.uptime) {
		r.uptime = a.uptime
	}
	if n := len(r.at); n > most && res.Outcome == probe.Success {
		text := fmt.Sprintf("%d restarts in %s, the last %s ago; max_restarts is %d",
			n, probe.Brief(time.Duration(now-r.at[0])), probe.Brief(time.Duration(now-r.at[n-1])), most)
		res.Outcome, res.Reason, res.Detail = probe.Warning, reasonRestarts, withDetail(text, res.Detail)
	}
}

// withDetail appends a detail to a text.
func withDetail(text, detail string) string {
	if detail == "" {
		return text
	}
	return text + ": " + detail
}

// level turns a successful result into a warning while the level that the rule watches has risen.
func (j judge) level(a *attempt, res *probe.Result, now int64) {
	r := &a.spec.rule
	if r.WarnOnRise == "" || !passed(res) {
		return
	}
	of := a.slot.addRare()
	if of.level == nil {
		of.level = new(verdict.Level)
	}
	rise, isRisen := of.level.Add(a.level, j.sc.clock.Time(now))
	if !isRisen || res.Outcome != probe.Success {
		return
	}
	text := describeRise(r.WarnOnRise, rise, j.sc.clock.Time(now))
	res.Outcome, res.Reason, res.Detail = probe.Warning, reasonRisen, withDetail(text, res.Detail)
}

// describeRise returns a text such as "p50 of latency 5ms → 52ms since 14:03:20 UTC".
func describeRise(what string, r verdict.Rise, now time.Time) string {
	format := "15:04:05 MST"
	if now.Sub(r.Since) >= 12*time.Hour {
		format = "2006-01-02 " + format
	}
	text := func(x float64) string { return strconv.FormatFloat(x, 'g', 2, 64) }
	if what == probe.RiseOfLatency {
		text = func(x float64) string { return probe.Brief(time.Duration(x * float64(time.Second))) }
	}
	return fmt.Sprintf("p50 of %s %s → %s since %s", what, text(r.From), text(r.To), r.Since.UTC().Format(format))
}
