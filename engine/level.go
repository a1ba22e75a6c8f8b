package engine

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// measures reports whether the level of the durations of attempts is watched.
func (*judged) measures(r *probe.Rule) bool { return r.WarnOnRise == probe.RiseOfLatency }

// measureTime notes how long a try took, of which some was lost to stalls of the engine: a quarter at most, or it says nothing.
func (j *judged) measureTime(took, lost int64) {
	if j.level = math.NaN(); lost <= took/4 {
		j.level = time.Duration(took - lost).Seconds()
	}
}

// measure notes a number that the handler has measured.
func (j *judged) measure(all map[string]float64, name string) {
	var known bool
	if j.level, known = all[name]; !known {
		j.level = math.NaN()
	}
}

// judgeLevel makes the result of an attempt that has passed a warning while the level that its rule watches has risen.
func (sc *scheduler) judgeLevel(a *attempt, res *probe.Result, now int64) {
	r := &a.spec.rule
	if r.WarnOnRise == "" || !passed(res) {
		return
	}
	of := a.slot.addRare()
	if of.level == nil {
		of.level = new(verdict.Level)
	}
	rise, isRisen := of.level.Add(a.level, sc.clock.Time(now))
	if !isRisen || res.Outcome != probe.Success {
		return
	}
	res.Outcome, res.Reason = probe.Warning, reasonRisen
	if text := describeRise(r.WarnOnRise, rise, sc.clock.Time(now)); res.Detail == "" {
		res.Detail = text
	} else {
		res.Detail = text + ": " + res.Detail
	}
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
