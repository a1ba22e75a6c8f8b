package notify

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// feed knows what a receiver was told and decides what it is to be told next. It has neither I/O nor a
// clock, and is not safe for concurrent use.
//
// It goes through the events of targets in their order. Once there is none, it compares the
// subjects of open with what the receiver was told, and then repeats what is due. A trouble that may turn
// out to be that of another target waits until that is decided, with the later events of its target:
// others do not wait for it.
type feed struct {
	spec    *Spec
	targets *targetSource
	sources map[Kind]source // with targets

	cursor uint64               // of the last event that the receiver has accepted, or that was not for it
	told   map[Subject]told     // what the receiver was told is in trouble
	open   map[Subject]uint64   // to be compared, each with the number of its mark
	marks  uint64               // so far
	held   map[Subject]struct{} // in trouble, and not to be told now: to be opened again
	lost   uint64               // events that were forgotten before they were told
	handed map[Subject]struct{} // which know was called with since the last batch
	missed map[Subject]*missed  // troubles that began while no engine could tell about them

	waiting map[Subject][]waitingEvent // before the cursor, and not told yet; none is empty
}

// waitingEvent is an event of a subject that waits, or is behind one that does.
type waitingEvent struct {
	event
	until time.Time // zero: it does not wait
}

// missed is a trouble of which the receiver was not told, since no engine could tell about it. If it has lasted for minMissed, the
// receiver is told of it later, and then of its end. It is not changed after it was put into a map.
type missed struct {
	event
	endedAt time.Time // zero while it lasts
}

// minMissed is how long a trouble must have lasted.
const minMissed = 20 * time.Second

// told is a notice that a receiver has accepted.
type told struct {
	Notice
	sent     time.Time // when it was last sent
	rejected bool      // the receiver has rejected it: it is not repeated
}

// batch is what a receiver is to be told next, and what the feed is once it has accepted that.
type batch struct {
	notices  []Notice
	cursor   uint64
	told     map[Subject]*Notice  // nil: that it is no longer in trouble
	compared map[Subject]uint64   // no longer open, unless they were marked again meanwhile
	opened   map[Subject]struct{} // to be compared next
	held     map[Subject]struct{} // to be compared later
	lost     uint64
	waiting  map[Subject][]waitingEvent // replaces what waits of these subjects
	missed   map[Subject]*missed        // replaces those of these subjects; nil: none
	rejected bool                       // by the receiver
	more     bool                       // there are further events or subjects to look at
}

func newFeed(spec *Spec, targets *targetSource, groups *groupSource) feed {
	return feed{spec: spec, targets: targets, sources: map[Kind]source{KindTarget: targets, KindGroup: groups}, told: map[Subject]told{}, open: map[Subject]uint64{}, held: map[Subject]struct{}{}, handed: map[Subject]struct{}{}, missed: map[Subject]*missed{}, waiting: map[Subject][]waitingEvent{}}
}

// maxLook bounds the events and subjects that one call of next looks at.
const maxLook = 1000

// next returns what to tell next: at most limit notices.
func (f *feed) next(now time.Time, limit int) batch {
	clear(f.handed)
	b := batch{cursor: f.cursor, told: map[Subject]*Notice{}, compared: map[Subject]uint64{}, opened: map[Subject]struct{}{}, held: map[Subject]struct{}{}, missed: map[Subject]*missed{}, waiting: map[Subject][]waitingEvent{}}
	for _, kind := range kinds {
		if f.sources[kind].isHeld() {
			continue
		}
		if kind == KindTarget {
			f.decide(&b, now, limit)
			f.follow(&b, now, limit)
		}
		if !b.more {
			f.compare(&b, kind, now, limit)
		}
	}
	if !b.more {
		f.repeat(&b, now, limit)
	}
	return b
}

// decide goes through the targets that wait, and tells what has been decided.
func (f *feed) decide(b *batch, now time.Time, limit int) {
	for subject, queue := range f.waiting {
		for len(queue) > 0 {
			if now.Before(queue[0].until) {
				break
			}
			if len(b.notices) >= limit {
				b.more = true
				return
			}
			ev, until := queue[0].event, queue[0].until
			if is, _ := f.targets.current(subject.Name); is.level == others { // since the event
				ev.level = others
			}
			if ev.level == others || until.IsZero() || !f.targets.hiddenSince(&ev, until) {
				f.step(b, &ev, now)
			}
			queue = queue[1:]
			b.waiting[subject] = queue
		}
	}
}

// queueOf returns what waits of a subject once the receiver has accepted a batch.
func (f *feed) queueOf(b *batch, s Subject) []waitingEvent {
	if queue, ok := b.waiting[s]; ok {
		return queue
	}
	return f.waiting[s]
}

// wait puts an event behind those of its subject that wait, or makes it wait if it is not known yet whose
// trouble it is. It reports whether the event is not to be told now: it waits, or is hidden.
func (f *feed) wait(b *batch, ev *event, now time.Time) bool {
	queue := f.queueOf(b, ev.Subject)
	until := f.undecided(b, ev)
	if len(queue) == 0 && !now.Before(until) {
		return !until.IsZero() && f.targets.hiddenSince(ev, until)
	}
	b.waiting[ev.Subject] = append(slices.Clip(queue), waitingEvent{*ev, until})
	return true
}

// undecided returns until when an event has to wait; zero if the receiver is not to be told of it, or
// knows already that the subject is in trouble.
func (f *feed) undecided(b *batch, ev *event) (until time.Time) {
	if ev.Kind != KindTarget || ev.level != firing || ev.held || f.toldBy(b, ev.Subject) != nil || !f.spec.Selection.selects(ev) {
		return time.Time{}
	}
	return f.targets.undecided(ev)
}

// follow goes through the events of targets. If the notifier coalesces them, it opens their targets.
func (f *feed) follow(b *batch, now time.Time, limit int) {
	from := f.cursor
	events, to := f.targets.after(from, maxLook)
	if f.spec.Coalesce {
		for i := range events {
			b.opened[events[i].Subject] = struct{}{}
		}
		b.cursor, b.more = to, b.more || len(events) > 0
		return
	}
	looked := uint64(0)
	for i := range events {
		if len(b.notices) >= limit {
			b.more, to = true, b.cursor
			break
		}
		if !f.wait(b, &events[i], now) {
			f.step(b, &events[i], now)
		}
		b.cursor = events[i].seq
		looked++
	}
	b.more = b.more || len(events) == maxLook
	b.cursor = to
	b.lost += to - from - looked
}

// compare compares open subjects of a kind with what the receiver was told.
func (f *feed) compare(b *batch, kind Kind, now time.Time, limit int) {
	looked := 0
	for subject, mark := range f.open {
		if subject.Kind != kind {
			continue
		}
		if len(b.notices) >= limit || looked == maxLook {
			b.more = true
			return
		}
		looked++
		ev, exists := f.sources[kind].current(subject.Name)
		switch {
		case !exists && ev.level == others:
			b.compared[subject] = mark
			b.told[subject], b.missed[subject] = nil, nil
			continue
		case ev.forgotten:
			b.told[subject] = nil
		case !exists:
			ev = event{level: well, Notice: Notice{Subject: subject, State: "removed"}}
		}
		if ev.level == firing && !f.spec.Selection.selects(&ev) { // any more
			ev = event{level: well, Notice: Notice{Subject: subject, State: "unselected"}}
		}
		if ev.level == well && !exists || ev.At.IsZero() {
			ev.At = now
		}
		b.compared[subject] = mark
		if len(f.queueOf(b, subject)) > 0 || now.Before(f.undecidedNow(b, &ev)) {
			b.held[subject] = struct{}{}
			continue
		}
		f.step(b, &ev, now)
	}
}

// undecidedNow is undecided for how a subject is now. If the events of subjects are told, the one waits by which it
// got there, or it was told: this is right after the event at most, which may not be there yet.
func (f *feed) undecidedNow(b *batch, ev *event) (until time.Time) {
	until = f.undecided(b, ev)
	if soon := ev.At.Add(tick); !f.spec.Coalesce && soon.Before(until) {
		return soon
	}
	return until
}

// step tells what an event is for the receiver.
func (f *feed) step(b *batch, ev *event, now time.Time) {
	before := f.toldBy(b, ev.Subject)
	switch {
	case ev.level == keep:
	case ev.level == unknown:
		if before != nil {
			b.held[ev.Subject] = struct{}{}
		}
	case ev.level == others:
		b.held[ev.Subject] = struct{}{} // it is compared once this engine may tell
		f.miss(b, ev)
	case ev.level == well || !f.spec.Selection.selects(ev):
		if before != nil {
			f.end(b, before, ev)
		} else {
			f.makeUp(b, ev)
		}
	case ev.held:
		if before == nil {
			b.held[ev.Subject] = struct{}{} // it is told once nothing holds it any more
		}
	case ev.outdated:
		b.held[ev.Subject] = struct{}{} // what was notified holds until an attempt has an outcome
	case ev.restarted && before != nil: // what was told holds: the cure is under way
	case before != nil && before.State != ev.State && before.Severity == ev.Severity && now.Before(f.sentAt(b, ev.Subject, now).Add(settle)):
		b.held[ev.Subject] = struct{}{}
	default:
		f.fire(b, before, ev)
	}
}

// miss notes that a trouble begins or ends while another engine tells about its subject, or none. If it is another one, this
// engine loses the subject, or know is called.
func (f *feed) miss(b *batch, ev *event) {
	m := f.missedBy(b, ev.Subject)
	switch {
	case ev.forgotten:
		b.missed[ev.Subject] = nil
	case ev.own == firing && m == nil && !ev.held && f.toldBy(b, ev.Subject) == nil && f.spec.Selection.selects(ev):
		b.missed[ev.Subject] = &missed{event: *ev}
	case ev.own == firing && m != nil:
		b.missed[ev.Subject] = &missed{event: m.event} // it goes on
	case ev.own == well && m != nil && m.endedAt.IsZero():
		b.missed[ev.Subject] = &missed{m.event, ev.At}
	}
}

// makeUp tells of a trouble that was missed, and has ended: the end is told next.
func (f *feed) makeUp(b *batch, ev *event) {
	m := f.missedBy(b, ev.Subject)
	if m == nil {
		return
	}
	b.missed[ev.Subject] = nil
	ended, until := cmp.Or(m.endedAt, ev.At), f.undecided(b, &m.event)
	if ended.Sub(m.At) >= minMissed && (until.IsZero() || !f.targets.hiddenSince(&m.event, until)) {
		f.fire(b, nil, &m.event)
		b.opened[ev.Subject] = struct{}{}
	}
}

// missedBy returns the missed trouble of a subject once the receiver has accepted a batch, or nil.
func (f *feed) missedBy(b *batch, s Subject) *missed {
	if m, ok := b.missed[s]; ok {
		return m
	}
	return f.missed[s]
}

// settle is the time after a notice of a trouble in which the receiver is not told of another state of the same
// trouble: an instance that fails goes through several within a second. Afterwards it is told the state then.
const settle = 5 * time.Second

// sentAt returns when the receiver was last told that a subject is in trouble, or now if it is being told.
func (f *feed) sentAt(b *batch, s Subject, now time.Time) time.Time {
	if _, fresh := b.told[s]; fresh {
		return now
	}
	return f.told[s].sent
}

// toldBy returns what the receiver was told about a subject once it has accepted a batch, or nil.
func (f *feed) toldBy(b *batch, s Subject) *Notice {
	if n, ok := b.told[s]; ok {
		return n
	}
	if t, ok := f.told[s]; ok {
		return &t.Notice
	}
	return nil
}

// end tells that a subject is no longer in trouble, under the labels under which it was.
func (f *feed) end(b *batch, before *Notice, ev *event) {
	n := *before
	n.Firing, n.State, n.Reason, n.Detail, n.Probe = false, ev.State, ev.Reason, ev.Detail, ev.Probe
	n.At, n.EndsAt, n.Before = ev.At, ev.At, nil
	if !n.EndsAt.After(n.StartsAt) {
		n.EndsAt = n.StartsAt.Add(time.Millisecond)
	}
	b.notices = append(b.notices, n)
	b.told[n.Subject] = nil
}

// fire tells that a subject is in trouble, unless the receiver knows that and the state.
func (f *feed) fire(b *batch, before *Notice, ev *event) {
	b.missed[ev.Subject] = nil
	n := ev.Notice
	n.Firing, n.StartsAt, n.Labels = true, ev.At, f.labels(ev)
	n.Link = link(f.spec.ExternalURL, n.Subject)
	if before != nil {
		n.StartsAt = before.StartsAt
		if !maps.Equal(n.Labels, before.Labels) || n.Severity != before.Severity {
			n.Before = &Identity{before.Labels, before.Severity}
		}
	}
	if before == nil || before.State != n.State || n.Before != nil {
		b.notices = append(b.notices, n)
	}
	n.Before = nil
	b.told[n.Subject] = &n // also another reason: it is repeated with that
}

// labels returns the labels of an event's subject, and those of the notifier.
func (f *feed) labels(ev *event) map[string]string {
	all := make(map[string]string, len(ev.Labels)+len(f.spec.Labels))
	maps.Copy(all, ev.Labels)
	maps.Copy(all, f.spec.Labels)
	return all
}

// repeat repeats what the receiver was told a time ago and still holds. Of others, too, since it may be that no engine
// can tell now, but none that is well: the one that tells about it may have told that it has ended.
func (f *feed) repeat(b *batch, now time.Time, limit int) {
	if f.spec.Resend == 0 {
		return
	}
	for subject, t := range f.told {
		if len(b.notices) >= limit {
			b.more = true
			return
		}
		if _, fresh := b.told[subject]; fresh || t.rejected || now.Sub(t.sent) < f.spec.Resend {
			continue
		}
		if is, _ := f.sources[subject.Kind].current(subject.Name); is.level == others && is.own == well {
			continue
		}
		n := t.Notice
		n.Repeated = true
		b.notices = append(b.notices, n)
	}
}

// accept makes the feed what it is once the receiver has accepted a batch, and returns the subjects
// about which it was told something else than before, each with whether it was told anything before.
func (f *feed) accept(b *batch, now time.Time) (changed map[Subject]bool) {
	changed = map[Subject]bool{}
	f.cursor = b.cursor
	f.lost += b.lost
	for subject, mark := range b.compared {
		if f.open[subject] == mark {
			delete(f.open, subject)
		}
	}
	for subject := range b.opened {
		f.mark(subject)
	}
	maps.Copy(f.held, b.held)
	for subject, m := range b.missed {
		if f.missed[subject] = m; m == nil {
			delete(f.missed, subject)
		}
	}
	for subject, queue := range b.waiting {
		if f.waiting[subject] = queue; len(queue) == 0 {
			delete(f.waiting, subject)
		}
	}
	for subject, n := range b.told {
		if _, isHanded := f.handed[subject]; isHanded && n == nil {
			continue // the receiver knows what the other engine has told it since
		}
		t, wasTold := f.told[subject]
		if changed[subject] = wasTold; n == nil {
			delete(f.told, subject)
			continue
		}
		t.Notice = *n
		f.told[subject] = t
	}
	for i := range b.notices {
		if t, ok := f.told[b.notices[i].Subject]; ok {
			t.sent, t.rejected = now, b.rejected
			f.told[b.notices[i].Subject] = t
		}
	}
	if b.lost > 0 {
		f.compareAll()
	}
	return changed
}

// resumeCursor returns the cursor with which the next engine resumes: it tells what waits.
func (f *feed) resumeCursor() uint64 {
	cursor := f.cursor
	for _, queue := range f.waiting {
		cursor = min(cursor, queue[0].seq-1)
	}
	return cursor
}

// know makes the receiver know of a trouble as if it had just been told of it, or of none, and compares its subject. It
// reports whether there is something to compare: nothing if the receiver knew of none, and is to know of none.
func (f *feed) know(s Subject, n *Notice, now time.Time) (isKnown bool) {
	delete(f.missed, s) // another engine could tell
	if _, knew := f.told[s]; !knew && n == nil {
		return false
	}
	delete(f.told, s)
	if n != nil {
		f.told[s] = told{Notice: *n, sent: now}
	}
	f.handed[s] = struct{}{}
	f.mark(s)
	return true
}

// mark opens a subject: it is compared after this, also if it is being compared now.
func (f *feed) mark(s Subject) {
	f.marks++
	f.open[s] = f.marks
}

// release opens the subjects that were not to be told: it is looked again whether they are now.
func (f *feed) release() {
	for subject := range f.held {
		f.mark(subject)
	}
	clear(f.held)
}

// compareAll opens all subjects that are in trouble, or of which the receiver was told that they are.
func (f *feed) compareAll() {
	for subject := range f.told {
		f.mark(subject)
	}
	for kind, s := range f.sources {
		for name := range s.troubled() {
			f.mark(Subject{kind, name})
		}
	}
}

// skip moves the cursor to the last event.
func (f *feed) skip() { _, f.cursor = f.targets.after(f.cursor, 0) }
