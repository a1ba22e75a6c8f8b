package beatprobe

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

const second = int64(time.Second)

func TestJudgement(t *testing.T) {
	const every, grace = time.Minute, 30 * time.Second
	ok, failed := Report{Status: OK}, Report{Status: Failed, Exit: 3, Detail: "disk full"}
	const base = int64(1_000_000) * second
	for name, c := range map[string]struct {
		s      sighting
		want   probe.Outcome
		reason probe.Reason
		detail string
	}{
		"a beat has come":              {sighting{now: base + 60*second, expected: 1, heard: 1, last: base, report: ok}, probe.Success, "", "last beat 1m ago"},
		"a beat came in the grace":     {sighting{now: base + 90*second, expected: 1, heard: 1, last: base, report: ok}, probe.Success, "", ""},
		"the engine itself is late":    {sighting{now: base + 91*second, expected: 1, heard: 1, last: base, report: ok}, probe.Success, "", ""},
		"a beat is missing":            {sighting{now: base + 91*second + 1, expected: 1, heard: 1, last: base, report: ok}, probe.Failure, reasonMissed, "last beat 1m31s ago; one is expected every 1m, 30s later at most"},
		"the instance has started":     {sighting{now: base + 91*second, expected: base, heard: 1}, probe.Unknown, probe.ReasonNoBeatDue, "no beat yet; the first one is due in 0s"},
		"the first beat is missing":    {sighting{now: base + 92*second, expected: base, heard: 1}, probe.Failure, reasonMissed, "no beat in the 1m32s"},
		"an instance before has sent":  {sighting{now: base + 10*second, expected: base, heard: 1, last: base - second, report: ok}, probe.Unknown, probe.ReasonNoBeatDue, "no beat yet"},
		"an instance before failed":    {sighting{now: base + 10*second, expected: base, heard: 1, last: base - second, report: failed}, probe.Unknown, probe.ReasonNoBeatDue, ""},
		"a failure is reported":        {sighting{now: base + 5*second, expected: 1, heard: 1, last: base, report: failed}, probe.Failure, reasonFailed, "the target has reported a failure 5s ago, exit status 3: disk full"},
		"a failure stays":              {sighting{now: base + 500*second, expected: 1, heard: 1, last: base, report: failed}, probe.Failure, reasonFailed, ""},
		"a beat may have been missed":  {sighting{now: base + 100*second, expected: 1, heard: base + 30*second, last: base, report: ok}, probe.Unknown, probe.ReasonNoBeatDue, "may have missed one"},
		"the second one is missing":    {sighting{now: base + 122*second, expected: 1, heard: base + 30*second, last: base, report: ok}, probe.Failure, reasonMissed, ""},
		"no beat was due meanwhile":    {sighting{now: base + 92*second, expected: 1, heard: base + 29*second, last: base, report: ok}, probe.Failure, reasonMissed, ""},
		"recovery may have been":       {sighting{now: base + 40*second, expected: 1, heard: base + 31*second, last: base, report: failed}, probe.Unknown, probe.ReasonNoBeatDue, ""},
		"no recovery was due":          {sighting{now: base + 40*second, expected: 1, heard: base + 20*second, last: base, report: failed}, probe.Failure, reasonFailed, ""},
		"the engine has just started":  {sighting{now: base + 5*second, expected: base - 900*second, heard: base}, probe.Unknown, probe.ReasonNoBeatDue, "no beat since the engine started to listen"},
		"a beat in spite of a missing": {sighting{now: base + 60*second, expected: 1, heard: base + 59*second, last: base, report: ok}, probe.Success, "", ""},
	} {
		r := c.s.judge(rhythm{every: every, grace: grace})
		if r.Outcome != c.want || r.Reason != c.reason || !strings.Contains(r.Detail, c.detail) {
			t.Errorf("%s: %v %s %q, want %v %s %q", name, r.Outcome, r.Reason, r.Detail, c.want, c.reason, c.detail)
		}
		if r.Outcome == probe.Unknown && (!r.NoRetry || !r.Reason.BlamesEngine()) {
			t.Errorf("%s: it is tried again, or counts", name)
		}
	}
}

// A target that sends its beats in time never fails, whatever the engine has missed; a target that stops sending them fails in time
// after the last interruption.
func TestATargetThatSendsBeatsNeverFailsForWhatTheEngineHasMissed(t *testing.T) {
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 1))
		every := time.Duration(1+r.IntN(100)) * time.Second
		grace := time.Duration(1 + r.Int64N(int64(every)*3/2))
		limit := int64(every + grace + margin)
		start := second * 1_000_000
		end := start + 40*int64(every)
		dies := end + 1
		if seed%2 == 0 {
			dies = start + r.Int64N(20*int64(every))
		}
		type span struct{ from, to int64 }
		var deaf []span
		for range r.IntN(6) {
			from := start + r.Int64N(end-start)
			deaf = append(deaf, span{from, from + 1 + r.Int64N(3*int64(every))})
		}
		isDeaf := func(at int64) bool {
			for _, d := range deaf {
				if d.from <= at && at <= d.to {
					return true
				}
			}
			return false
		}
		var heardBeats []int64
		for k := int64(1); start+k*int64(every) < dies; k++ {
			if at := start + k*int64(every) + r.Int64N(int64(grace)); at < dies && !isDeaf(at) {
				heardBeats = append(heardBeats, at)
			}
		}
		for now := start; now < end; now += int64(every) / 7 {
			if isDeaf(now) {
				continue // a stopped engine makes no attempts
			}
			s := sighting{now: now, expected: start, heard: start}
			for _, d := range deaf {
				if d.to < now {
					s.heard = max(s.heard, d.to)
				}
			}
			for _, at := range heardBeats {
				if at <= now && at > s.last {
					s.last, s.report = at, Report{Status: OK}
				}
			}
			got := s.judge(rhythm{every: every, grace: grace}).Outcome
			if got == probe.Failure && now < dies {
				t.Fatalf("seed %d: a target that works fails %v after the start; every %v, grace %v, %+v", seed, time.Duration(now-start), every, grace, s)
			}
			if got != probe.Failure && now > max(dies, s.heard)+limit {
				t.Fatalf("seed %d: a target that has died %v ago is %v; every %v, grace %v, %+v", seed, time.Duration(now-dies), got, every, grace, s)
			}
		}
	}
}

func TestStopsAndClocksThatAreSetBackAreInterruptions(t *testing.T) {
	at := func(s float64) int64 { return 1_000*second + int64(s*float64(second)) }
	var l listening
	look := func(now, wall float64) string { return l.look(at(now), at(wall)) }
	if why := look(0, 0); why != "" || l.all != at(0) {
		t.Errorf("at first: %q, heard since %v", why, l.all)
	}
	if why := look(1, 1); why != "" || l.all != at(0) {
		t.Errorf("a look in time: %q", why)
	}
	if why := look(2.1, 2.1); !strings.Contains(why, "stopped") || l.all != at(2.1) || l.udp != 0 {
		t.Errorf("after a stop: %q, %+v", why, l)
	}
	if why := look(2.5, 3602.5); why != "" || l.udp != 0 {
		t.Errorf("after the clock was set forward: %q", why)
	}
	if why := look(3, 3); !strings.Contains(why, "set back by 1h") || l.udp != at(3) || l.all != at(2.1) {
		t.Errorf("after the clock was set back: %q, %+v", why, l)
	}
	if why := look(3.5, 3.5); why != "" || l.udp != at(3.5) {
		t.Errorf("while the clock has not caught up: %q, %+v", why, l)
	}
	if l.since(&record{last: 1, byUDP: true}) != at(3.5) || l.since(&record{last: 1}) != at(2.1) {
		t.Errorf("heard since %v by UDP, %v by HTTP", l.since(&record{last: 1, byUDP: true}), l.since(&record{last: 1}))
	}
	l.latest = at(3.9)
	if look(4, 4); l.udp != at(3.5) {
		t.Error("a clock that has caught up is an interruption")
	}
	if l.interruptions != 2 {
		t.Errorf("there were %d interruptions", l.interruptions)
	}
}
