package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

// Limits on the states that an Engine records.
const (
	day          = int64(24 * 60 * 60) // seconds for which spans are kept
	week         = 7 * day             // seconds for which hours are kept
	hour         = int64(60 * 60)
	maxSpans     = 512      // bytes for the spans of one target, about three each; the oldest are discarded
	maxGaps      = 64       // above it, the oldest two are merged
	maxUptimes   = 32 << 20 // bytes for all targets; above it, those of arbitrary targets are discarded
	uptimeBytes  = 200      // for one target, in addition to its name, spans and hours
	stateBits    = 5        // of the state in a span
	resumeWithin = 600      // seconds after RestoreUptimes in which a target resumes; later, another engine had it
)

// Uptime has the states of a target in the last 24 hours, and its availability. States count as up (ready, degraded, completed),
// as down (states of trouble except degraded and blind; restarting, damped), or not at all (absent, blind, unreachable, paused,
// stopped, starting, and unknown times).
type Uptime struct {
	From, To  time.Time    // the last 24 hours
	Spans     []Span       // from From to To, without gaps
	Day, Week Availability // in the last 24 hours, and in the last 7 days in whole hours
}

// Span is a period in which the state of a target did not change.
type Span struct {
	From    time.Time
	State   probe.TargetState
	Unknown bool // no engine watched the target, or the state was discarded
}

// Availability has the times for which a target was up and down.
type Availability struct{ Up, Down time.Duration }

// Ratio returns the share of the counted time in which the target was up, and false if no time counts.
func (a Availability) Ratio() (float64, bool) {
	all := a.Up + a.Down
	return float64(a.Up) / float64(max(1, all)), all > 0
}

// weight determines how a state counts.
type weight uint8

const (
	weightless weight = iota
	weightUp
	weightDown
)

func weightOf(s probe.TargetState) weight {
	switch {
	case s == probe.StateReady || s == probe.StateDegraded || s == probe.StateCompleted:
		return weightUp
	case s.InTrouble() && s != probe.StateBlind || s == probe.StateRestarting || s == probe.StateDamped:
		return weightDown
	}
	return weightless
}

// gap is a period in which no engine ran, in seconds since 1970.
type gap struct{ From, To int64 }

// uptime has the spans of one target. Times are in seconds since 1970.
type uptime struct {
	Began int64             `json:"began"`  // since when the states are known
	First int64             `json:"first"`  // when the first of Spans began
	Spans []byte            `json:"states"` // each finished span, the oldest first, as a varint: seconds<<stateBits | state
	Since int64             `json:"since"`  // when the last of Spans ended
	State probe.TargetState `json:"state"`  // since then
	Hours [][3]int64        `json:"hours"`  // not entirely up: hours since 1970, seconds down, seconds uncounted

	counted  int   // bytes included in uptimes.size
	restored int64 // when it was restored, until the target is reported; 0 if it was not restored
}

// uptimes has the spans of all targets. A target that has been in a good state since its start takes no memory.
type uptimes struct {
	uptimeMu sync.Mutex // guards all below
	targets  map[string]*uptime
	size     int   // approximate bytes for all targets
	gaps     []gap // sorted
	resumed  int64 // Clock.Resumed when the last gap was noticed
	slept    time.Duration
}

func seconds(nano int64) int64 { return nano / int64(time.Second) }

// noticeSuspension adds a gap if the machine was suspended since the last call. It needs uptimeMu.
func (all *uptimes) noticeSuspension(c *clock.Clock) {
	if resumed, slept := c.Resumed(), c.Suspended(); resumed != all.resumed {
		all.addGap(gap{seconds(resumed - int64(slept-all.slept)), seconds(resumed)})
		all.resumed, all.slept = resumed, slept
	}
}

// addGap adds a gap that ends after all others. It needs uptimeMu.
func (all *uptimes) addGap(g gap) {
	if g.To <= g.From {
		return
	}
	all.gaps = slices.DeleteFunc(append(all.gaps, g), func(old gap) bool { return old.To < g.To-week })
	if len(all.gaps) > maxGaps {
		all.gaps[1].From = all.gaps[0].From
		all.gaps = slices.Delete(all.gaps, 0, 1)
	}
}

// change records a change of a target's state, and reports whether it was stored. since is when the previous state began, or 0
// for a new target. It needs uptimeMu.
func (all *uptimes) change(name string, since int64, before, after probe.TargetState, now int64) bool {
	t := all.targets[name]
	if t != nil && since == 0 && (t.restored == 0 || now-t.restored > resumeWithin) { // the target was removed, or was elsewhere
		all.size -= t.counted
		delete(all.targets, name)
		t = nil
	}
	if t != nil {
		t.restored = 0
	}
	isUsual := (before == probe.StateAbsent || before == probe.StateStarting) && weightOf(after) != weightDown
	switch {
	case t == nil && isUsual, t != nil && t.State == after:
		return false // the latter continues the state from an earlier engine
	case t == nil && since == 0:
		t = &uptime{Began: now, First: now, Since: now, State: after}
	case t == nil:
		t = &uptime{Began: since, First: since, Since: since, State: before}
	}
	t.end(after, now, all.gaps)
	all.put(name, t)
	return true
}

// put sets the spans of a target, and discards those of other targets beyond the limit. It needs uptimeMu.
func (all *uptimes) put(name string, t *uptime) {
	all.targets[name] = t
	all.size -= t.counted
	t.counted = t.size(name)
	all.size += t.counted
	for other, of := range all.targets {
		if all.size <= maxUptimes {
			break
		}
		if other != name {
			all.size -= of.counted
			delete(all.targets, other)
		}
	}
}

func (t *uptime) size(name string) int {
	return uptimeBytes + len(name) + cap(t.Spans) + 24*cap(t.Hours)
}

// end ends the current span, and discards the spans before the last 24 hours.
func (t *uptime) end(after probe.TargetState, now int64, gaps []gap) {
	if now = max(now, t.Since); now > t.Since {
		t.count(t.State, t.Since, now, gaps)
		t.Spans = binary.AppendUvarint(t.Spans, uint64(now-t.Since)<<stateBits|uint64(t.State))
	}
	t.Since, t.State = now, after
	for len(t.Spans) > 0 {
		n, size := binary.Uvarint(t.Spans)
		if ended := t.First + int64(n>>stateBits); ended <= now-day || len(t.Spans) > maxSpans {
			t.First, t.Spans = ended, append(t.Spans[:0], t.Spans[size:]...)
			continue
		}
		break
	}
	t.Hours = slices.DeleteFunc(t.Hours, func(h [3]int64) bool { return h[0] < (now-week)/hour })
}

// count adds a span to the hours, without its gaps.
func (t *uptime) count(state probe.TargetState, from, to int64, gaps []gap) {
	w := weightOf(state)
	if w == weightUp {
		return
	}
	for from = max(from, to-week); from < to; {
		h := from / hour
		end := min(to, (h+1)*hour)
		n := end - from - overlap(gaps, from, end)
		if i := len(t.Hours) - 1; n > 0 && (i < 0 || t.Hours[i][0] != h) {
			t.Hours = append(t.Hours, [3]int64{h})
		}
		if n > 0 && w == weightDown {
			t.Hours[len(t.Hours)-1][1] += n
		} else if n > 0 {
			t.Hours[len(t.Hours)-1][2] += n
		}
		from = end
	}
}

// overlap returns how many seconds of a period are in gaps.
func overlap(gaps []gap, from, to int64) (n int64) {
	for _, g := range gaps {
		n += max(0, min(to, g.To)-max(from, g.From))
	}
	return n
}

// each calls f for each span in the 24 hours before now, the oldest first, including the current one.
func (t *uptime) each(now int64, f func(state probe.TargetState, from, to int64)) {
	from := t.First
	for rest := t.Spans; len(rest) > 0; {
		n, size := binary.Uvarint(rest)
		if to := from + int64(n>>stateBits); to > now-day {
			f(probe.TargetState(n&(1<<stateBits-1)), max(from, now-day), to)
		}
		from, rest = from+int64(n>>stateBits), rest[size:]
	}
	f(t.State, max(t.Since, now-day), max(t.Since, now))
}

// shown returns the Uptime at the time now.
func (t *uptime) shown(now int64, gaps []gap) Uptime {
	shown := Uptime{From: time.Unix(now-day, 0), To: time.Unix(now, 0)}
	add := func(from int64, s Span) {
		s.From = time.Unix(from, 0)
		if n := len(shown.Spans); n > 0 && shown.Spans[n-1].State == s.State && shown.Spans[n-1].Unknown == s.Unknown {
			return
		}
		shown.Spans = append(shown.Spans, s)
	}
	if t.First > now-day {
		add(now-day, Span{Unknown: true})
	}
	t.each(now, func(state probe.TargetState, from, to int64) {
		n := to - from - overlap(gaps, from, to)
		switch weightOf(state) {
		case weightUp:
			shown.Day.Up += time.Duration(n) * time.Second
		case weightDown:
			shown.Day.Down += time.Duration(n) * time.Second
		}
		for _, g := range gaps {
			if g.To <= from || g.From >= to {
				continue
			}
			if g.From > from {
				add(from, Span{State: state})
			}
			add(max(from, g.From), Span{Unknown: true})
			from = min(to, g.To)
		}
		if from < to {
			add(from, Span{State: state})
		}
	})
	began := max(t.Began, (now/hour-7*24+1)*hour)
	total := uptime{Hours: slices.Clone(t.Hours)}
	total.count(t.State, max(began, t.Since), now, gaps)
	known := max(0, now-began-overlap(gaps, began, now))
	var down, none int64
	for _, h := range total.Hours {
		if h[0] >= began/hour {
			down, none = down+h[1], none+h[2]
		}
	}
	shown.Week = Availability{Up: time.Duration(max(0, known-down-none)) * time.Second, Down: time.Duration(down) * time.Second}
	return shown
}

// check returns an error if t is inconsistent.
func (t *uptime) check() error {
	at := t.First
	for rest := t.Spans; len(rest) > 0; {
		n, size := binary.Uvarint(rest)
		if size <= 0 || n>>stateBits > uint64(1<<40) || n&(1<<stateBits-1) >= uint64(probe.TargetStates) {
			return errors.New("invalid span")
		}
		at, rest = at+int64(n>>stateBits), rest[size:]
	}
	if at != t.Since || t.Began > t.First || t.Began < 0 || len(t.Spans) > maxSpans || len(t.Hours) > int(week/hour)+1 {
		return errors.New("inconsistent spans")
	}
	for i, h := range t.Hours {
		if h[1] < 0 || h[2] < 0 || h[1]+h[2] > hour || i > 0 && h[0] <= t.Hours[i-1][0] {
			return errors.New("invalid hour")
		}
	}
	return nil
}

// recordState records a change of a target's state. since is when the new state began, if an earlier engine knew the target.
func (m *summaries) recordState(t *target, before, after probe.TargetState, since time.Time, now int64) {
	at := seconds(now)
	m.uptimes.uptimeMu.Lock()
	m.uptimes.noticeSuspension(m.clock)
	isRemembered := m.uptimes.change(t.name, int64(t.since), before, after, at)
	m.uptimes.uptimeMu.Unlock()
	if isRemembered {
		m.out.record(t.name, RecordUptime)
	}
	if t.since = uint32(at); before == probe.StateAbsent && !since.IsZero() {
		t.since = uint32(min(at, max(1, since.Unix())))
	}
}

// Uptime returns the uptime of a target, and whether the target exists. It never waits for the scheduler.
func (r Records) Uptime(target string) (Uptime, bool) {
	all, c := &r.engine.scheduler.summaries.uptimes, r.engine.scheduler.clock
	st, ok := r.engine.Target(target)
	now := seconds(c.Now())
	all.uptimeMu.Lock()
	defer all.uptimeMu.Unlock()
	all.noticeSuspension(c)
	t := all.targets[target]
	switch {
	case !ok:
		return Uptime{}, false
	case t != nil:
	case st.Since.IsZero():
		t = &uptime{Began: now, First: now, Since: now, State: st.State}
	default:
		since := min(now, st.Since.Unix())
		t = &uptime{Began: since, First: since, Since: since, State: st.State}
	}
	return t.shown(now, all.gaps), true
}

// Uptimes returns the targets that were not always in a good state since their start, in no particular order.
func (r Records) Uptimes() (names []string) {
	all := &r.engine.scheduler.summaries.uptimes
	all.uptimeMu.Lock()
	defer all.uptimeMu.Unlock()
	for name, t := range all.targets {
		if weightOf(t.State) != weightDown && t.Since < seconds(r.engine.scheduler.clock.Now())-week {
			all.size -= t.counted
			delete(all.targets, name) // its state has been good for so long that no record is necessary
			continue
		}
		names = append(names, name)
	}
	return names
}

// SavedUptime returns the data that the next engine needs for Uptime, to be encoded as JSON, and false if there is none.
func (r Records) SavedUptime(target string) (any, bool) {
	all := &r.engine.scheduler.summaries.uptimes
	all.uptimeMu.Lock()
	defer all.uptimeMu.Unlock()
	t := all.targets[target]
	if t == nil {
		return nil, false
	}
	saved := *t
	saved.Spans, saved.Hours = slices.Clone(t.Spans), slices.Clone(t.Hours)
	return saved, true
}

// Gaps returns the periods in which no engine ran, in seconds since 1970, to be encoded as JSON.
func (r Records) Gaps() [][2]int64 {
	all := &r.engine.scheduler.summaries.uptimes
	all.uptimeMu.Lock()
	defer all.uptimeMu.Unlock()
	gaps := make([][2]int64, 0, len(all.gaps))
	for _, g := range all.gaps {
		gaps = append(gaps, [2]int64{g.From, g.To})
	}
	return gaps
}

// RestoreUptimes restores the uptimes of an earlier engine: saved has, for each target, a function that unmarshals the JSON of
// SavedUptime, and gaps is the result of Gaps. stopped is when that engine stopped; if it is zero, the time of the last state
// change is used. shift is how far the wall clock was set forward since then. Call it before Run and before targets are reported.
// The errors concern targets that were skipped.
func (r Records) RestoreUptimes(saved map[string]func(into any) error, gaps [][2]int64, stopped time.Time, shift time.Duration) error {
	all, by := &r.engine.scheduler.summaries.uptimes, int64(shift/time.Second)
	all.uptimeMu.Lock()
	defer all.uptimeMu.Unlock()
	var wrong []error
	last, now := int64(0), seconds(r.engine.scheduler.clock.Now())
	for name, unmarshal := range saved {
		t := new(uptime)
		err := unmarshal(t)
		if t.Spans == nil { // an earlier release, with another format, may have written them
			t.First = t.Since
		}
		if err = errors.Join(err, t.check()); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
			continue
		}
		t.Began, t.First, t.Since = t.Began+by, t.First+by, t.Since+by
		last, t.restored = max(last, t.Since), now
		all.put(name, t)
	}
	for _, g := range gaps {
		all.addGap(gap{g[0] + by, g[1] + by})
		last = max(last, g[1]+by)
	}
	if !stopped.IsZero() {
		last = max(last, stopped.Unix())
	}
	if last > 0 {
		all.addGap(gap{last, now})
	}
	return errors.Join(wrong...)
}
