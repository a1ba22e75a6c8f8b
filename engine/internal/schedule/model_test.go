package schedule

import (
	"slices"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// model is a slow but obviously correct Schedule: it keeps lists, and searches them in each call.
type model struct {
	counters
	concurrency int
	interval    int64
	began       int64
	probes      []*modelProbe
	granted     []int64 // times at which attempts asked the pacer and got a time
	waiting     []*modelWait
	places      []Lane // lanes of the attempts in flight
}

type modelProbe struct {
	key          uint32
	times        Times
	nonBlocking  bool
	at           int64 // due time; none if it is not due
	isExtra      bool
	isAsked      bool
	isTriggered  bool
	wasTriggered []bool // for each attempt
	isPaced      bool
	isClose      bool
	due          int64
	inflight     bool
	again        bool
	known        bool
	fast         bool
	shed         bool
}

// modelWait is a due probe or an attempt that waits for a place in a lane.
type modelWait struct {
	lane    Lane
	probe   *modelProbe
	attempt int
}

const none = -1 << 62

func (m *model) find(key uint32) *modelProbe {
	for _, p := range m.probes {
		if p.key == key {
			return p
		}
	}
	return nil
}

func (m *model) remove(key uint32) {
	removed := m.find(key)
	m.waiting = slices.DeleteFunc(m.waiting, func(w *modelWait) bool { return w.probe == removed && removed != nil })
	m.probes = slices.DeleteFunc(m.probes, func(p *modelProbe) bool { return p.key == key })
}

func (m *model) isQueued(p *modelProbe) bool {
	return slices.ContainsFunc(m.waiting, func(w *modelWait) bool { return w.probe == p })
}

func (p *modelProbe) lane() Lane {
	if p.nonBlocking {
		return NonBlocking
	}
	return p.workerLane()
}

func (p *modelProbe) workerLane() Lane {
	if !p.known {
		return First
	}
	if p.fast {
		return Fast
	}
	return Slow
}

func (m *model) admits(l Lane) bool {
	workers, others := 0, 0
	for _, place := range m.places {
		if place == NonBlocking {
			others++
		} else {
			workers++
		}
	}
	switch l {
	case NonBlocking:
		return others < 16*m.concurrency
	case Fast:
		return workers < m.concurrency
	case First: // an eighth is left to fast ones, and at least one place if a quarter is one
		left := m.concurrency / 4
		for left > 1 && 2*left > m.concurrency/4+1 {
			left--
		}
		return workers < m.concurrency-left
	}
	return workers < m.concurrency-m.concurrency/4
}

// first returns the probe that is due first, and of several the one with the lowest key.
func (m *model) first() (first *modelProbe) {
	for _, p := range m.probes {
		if p.at != none && (first == nil || p.at < first.at || p.at == first.at && p.key < first.key) {
			first = p
		}
	}
	return first
}

func (m *model) pop(now int64) (*modelProbe, int64) {
	p := m.first()
	if p == nil {
		return nil, 0
	}
	early := int64(0)
	if p.nonBlocking && !p.isExtra {
		early = min(int64(20*time.Millisecond), p.times.Period/50)
	}
	due := p.at
	if due > now+early {
		return nil, 0
	}
	p.at = none
	return p, due
}

func (m *model) admit(p *modelProbe, due, now int64) (start bool, at int64) {
	if p.isExtra && !p.isPaced {
		p.isPaced = true
		if at := m.pace(now, due, p.times); at > now {
			p.at = at
			return false, at
		}
	}
	p.due = max(due, m.began)
	for i, w := range m.waiting {
		if w.probe == p && w.lane == p.lane() {
			return false, 0
		}
		if w.probe == p {
			m.waiting = slices.Delete(m.waiting, i, i+1)
			break
		}
	}
	if !m.admits(p.lane()) {
		m.waiting = append(m.waiting, &modelWait{lane: p.lane(), probe: p})
		return false, 0
	}
	return true, 0
}

// pace counts, at the rate, all attempts that got a time, beginning with the first one.
func (m *model) pace(now, due int64, times Times) int64 {
	ideal := int64(0)
	for _, asked := range m.granted {
		ideal = max(ideal, asked) + m.interval
	}
	at := max(now, ideal-int64(50*time.Millisecond))
	if regular := m.regular(due, times); regular <= at {
		return regular
	}
	m.granted = append(m.granted, now)
	return at
}

// regular returns the first regular time at or after at, by counting.
func (m *model) regular(at int64, times Times) int64 {
	t := at - at%times.Period - times.Period + times.Offset
	for t < at {
		t += times.Period
	}
	return t
}

func (p *modelProbe) replan(began int64, failed bool) int64 {
	if failed {
		p.isClose = false
		return new(model).regular(began+p.times.Period, p.times)
	}
	return new(model).regular(began+p.times.Period/2, p.times)
}

func (m *model) start(p *modelProbe, now int64, mayShed, failing bool) (st Started, ok bool) {
	late := max(0, now-p.due)
	if mayShed && late > int64(100*time.Millisecond) && late > p.times.Period/50 && !p.shed && !p.isExtra {
		p.shed = true
		m.Shed++
		p.at, p.isExtra, p.isAsked, p.isTriggered, p.isPaced = m.regular(now+1, p.times), false, false, false, false
		return Started{Next: p.at}, false
	}
	for skipped := p.due + p.times.Period; skipped <= now; skipped += p.times.Period {
		m.Late++
	}
	st = Started{Lane: p.lane(), Lateness: time.Duration(late), Next: m.regular(p.due, p.times)}
	isRegular := !p.isExtra || st.Next <= now
	if isRegular {
		st.Next = m.regular(max(now, p.due)+p.times.Period/2, p.times)
	}
	switch {
	case isRegular && p.isClose:
		st.Counts, p.isClose = !failing, false
	case isRegular:
		st.Counts = true
	case p.isAsked && !failing:
		st.Counts, p.isClose = true, true
	}
	p.wasTriggered = append(p.wasTriggered, p.isTriggered)
	p.at, p.isExtra, p.isAsked, p.isTriggered, p.isPaced, p.shed, p.again, p.inflight = none, false, false, false, false, false, false, true
	m.places = append(m.places, p.lane())
	return st, true
}

func (m *model) release(l Lane) {
	for i, place := range m.places {
		if place == l || l != NonBlocking && place != NonBlocking {
			m.places = slices.Delete(m.places, i, i+1)
			return
		}
	}
}

func (m *model) next(p *modelProbe, planned, now int64) int64 {
	isAgain, isAsked := p.again, p.isAsked
	soon := max(now, p.due+p.gap(isAsked))
	p.again, p.isExtra, p.isAsked, p.isTriggered, p.isPaced = false, false, false, false, false
	switch {
	case isAgain && (soon < planned && isAsked || soon < planned-int64(probe.MinPeriod)):
		p.at, p.isExtra, p.isAsked, p.isTriggered = soon, true, isAsked, !isAsked
		return soon
	case isAgain:
		soon = max(now, p.due+int64(probe.MinPeriod), planned)
		for ; planned+p.times.Period <= soon; planned += p.times.Period {
			m.Overrun++
		}
		p.at = soon
		return soon
	}
	for ; planned < now; planned += p.times.Period {
		m.Overrun++
	}
	p.at = planned
	return planned
}

func (m *model) trigger(p *modelProbe, now int64, byHandler bool) int64 {
	byHandler = byHandler || p.isAsked
	switch {
	case p.inflight:
		p.again, p.isAsked = true, byHandler
		return 0
	case m.isQueued(p):
		p.isAsked = byHandler
		return 0
	}
	now = max(now, p.due+p.gap(byHandler))
	if p.at != none && (p.at <= now || !byHandler && p.at <= now+int64(probe.MinPeriod)) {
		p.isAsked = byHandler && p.isExtra
		return 0
	}
	p.at, p.isExtra, p.isAsked, p.isTriggered, p.isPaced = now, true, byHandler, !byHandler, false
	return now
}

// gap returns the minimum time between an attempt and the previous one.
func (p *modelProbe) gap(byHandler bool) int64 {
	if slices.Contains(p.wasTriggered[max(0, len(p.wasTriggered)-2):], true) && !byHandler && p.times.Period > 10*int64(probe.MinPeriod) {
		return p.times.Period / 10
	}
	return int64(probe.MinPeriod)
}

// take removes the first entry that waits in a lane: an attempt or a probe.
func (m *model) take(l Lane, attempt bool) *modelWait {
	if !m.admits(l) {
		return nil
	}
	for i, w := range m.waiting {
		if w.lane == l && (w.probe == nil) == attempt {
			m.waiting = slices.Delete(m.waiting, i, i+1)
			return w
		}
	}
	return nil
}

func (m *model) nextQueued(l Lane, now int64) *modelProbe {
	for w := m.take(l, false); w != nil; w = m.take(l, false) {
		p := w.probe
		switch {
		case p.inflight:
		case p.lane() != l:
			p.at = now
		default:
			return p
		}
	}
	return nil
}

func (m *model) handoff(p *modelProbe, attempt int) (Lane, bool) {
	m.release(NonBlocking)
	l := p.workerLane()
	if !m.admits(l) {
		m.waiting = append(m.waiting, &modelWait{lane: l, attempt: attempt})
		return l, false
	}
	m.places = append(m.places, l)
	return l, true
}

func (m *model) nextHandoff(l Lane) (int, bool) {
	w := m.take(l, true)
	if w == nil {
		return 0, false
	}
	m.places = append(m.places, l)
	return w.attempt, true
}
