package notify

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// feed keeps the notices that a receiver has accepted, and decides which to send next. It has neither I/O nor a clock,
// and is not safe for concurrent use.
//
// It processes the events of targets in order. When there are no more, it compares the open subjects with the accepted
// notices, and then repeats notices that are due. A trouble that may turn out to be explained by another target waits
// until that is decided, together with the later events of its target; other targets do not wait for it.
type feed struct {
	spec    *Spec
	targets *targetSource
	sources map[Kind]source // by kind, including targets

	cursor uint64               // of the last event that the receiver has accepted, or that was not meant for it
	told   map[Subject]told     // accepted notices of subjects in trouble
	open   map[Subject]uint64   // subjects to be compared, each with the number of its mark
	marks  uint64               // number of marks so far
	held   map[Subject]struct{} // subjects in trouble that must not be reported now; they are opened again
	lost   uint64               // number of events that the history dropped before they were reported
	handed map[Subject]struct{} // subjects for which know was called since the last batch
	missed map[Subject]*missed  // troubles that began while no engine could report them

	waiting map[Subject][]waitingEvent // events before the cursor that were not reported yet; no queue is empty
}

// waitingEvent is an event that waits, or that is queued behind one that waits.
type waitingEvent struct {
	event
	until time.Time // zero: the event does not wait itself
}

// missed is a trouble that the receiver was not notified of, since no engine could. If it has lasted for minMissed, the
// receiver is later notified of it and of its end. It must not be modified after it was put into a map.
type missed struct {
	event
	endedAt time.Time // zero while it lasts
}

// minMissed is how long a missed trouble must have lasted to be reported.
const minMissed = 20 * time.Second

// told is a notice that a receiver has accepted.
type told struct {
	Notice
	sent     time.Time // when it was last sent
	rejected bool      // the receiver has rejected it: it is not repeated
}

// batch has the next notices for a receiver, and the changes of the feed once the receiver has accepted them.
type batch struct {
	notices  []Notice
	cursor   uint64
	told     map[Subject]*Notice  // nil: no longer in trouble
	compared map[Subject]uint64   // no longer open, unless they were marked again meanwhile
	opened   map[Subject]struct{} // to be compared next
	held     map[Subject]struct{} // to be compared later
	lost     uint64
	waiting  map[Subject][]waitingEvent // replaces the queues of these subjects
	missed   map[Subject]*missed        // replaces those of these subjects; nil: none
	rejected bool                       // by the receiver
	more     bool                       // there are more events or subjects to process
}

func newFeed(spec *Spec, targets *targetSource, groups *groupSource) feed {
	return feed{spec: spec, targets: targets, sources: map[Kind]source{KindTarget: targets, KindGroup: groups}, told: map[Subject]told{}, open: map[Subject]uint64{}, held: map[Subject]struct{}{}, handed: map[Subject]struct{}{}, missed: map[Subject]*missed{}, waiting: map[Subject][]waitingEvent{}}
}

// maxLook bounds the events and subjects that one call of next processes.
const maxLook = 1000

// next returns the next batch, with at most limit notices.
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

// decide processes the waiting events whose wait is over.
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
			if is, _ := f.targets.current(subject.Name); is.level == others { // changed since the event
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

// queueOf returns the waiting events of a subject, as they are once the receiver has accepted a batch.
func (f *feed) queueOf(b *batch, s Subject) []waitingEvent {
	if queue, ok := b.waiting[s]; ok {
		return queue
	}
	return f.waiting[s]
}

// wait queues an event behind the waiting events of its subject, or makes it wait if it is undecided whether another
// target explains the trouble. It reports whether the event must not be reported now, since it waits or is hidden.
func (f *feed) wait(b *batch, ev *event, now time.Time) bool {
	queue := f.queueOf(b, ev.Subject)
	until := f.undecided(b, ev)
	if len(queue) == 0 && !now.Before(until) {
		return !until.IsZero() && f.targets.hiddenSince(ev, until)
	}
	b.waiting[ev.Subject] = append(slices.Clip(queue), waitingEvent{*ev, until})
	return true
}

// undecided returns the time until which an event must wait. It is zero if the receiver is not to be notified of the
// event, or already knows that the subject is in trouble.
func (f *feed) undecided(b *batch, ev *event) (until time.Time) {
	if ev.Kind != KindTarget || ev.level != firing || ev.held || f.toldBy(b, ev.Subject) != nil || !f.spec.Selection.selects(ev) {
		return time.Time{}
	}
	return f.targets.undecided(ev)
}

// follow processes the events of targets. If the notifier coalesces them, it only opens their targets.
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

// compare compares open subjects of a kind with the accepted notices.
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
		if ev.level == firing && !f.spec.Selection.selects(&ev) { // no longer selected
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

// undecidedNow is undecided for the current state of a subject. Unless the notifier coalesces, the event that led to
// this state waits itself, or was processed already; then the comparison waits at most one tick, in case that the event
// is not in the history yet.
func (f *feed) undecidedNow(b *batch, ev *event) (until time.Time) {
	until = f.undecided(b, ev)
	if soon := ev.At.Add(tick); !f.spec.Coalesce && soon.Before(until) {
		return soon
	}
	return until
}

// step processes an event: it adds the notice that the event requires, if any.
func (f *feed) step(b *batch, ev *event, now time.Time) {
	before := f.toldBy(b, ev.Subject)
	switch {
	case ev.level == keep:
	case ev.level == unknown:
		if before != nil {
			b.held[ev.Subject] = struct{}{}
		}
	case ev.level == others:
		b.held[ev.Subject] = struct{}{} // it is compared again once this engine may report it
		f.miss(b, ev)
	case ev.level == well || !f.spec.Selection.selects(ev):
		if before != nil {
			f.end(b, before, ev)
		} else {
			f.makeUp(b, ev)
		}
	case ev.held:
		if before == nil {
			b.held[ev.Subject] = struct{}{} // it is reported once nothing holds it
		}
	case ev.outdated:
		b.held[ev.Subject] = struct{}{} // the last notice remains valid until an attempt has an outcome
	case ev.restarted && before != nil: // the last notice remains valid: a restart is under way
	case before != nil && before.State != ev.State && before.Severity == ev.Severity && now.Before(f.sentAt(b, ev.Subject, now).Add(settle)):
		b.held[ev.Subject] = struct{}{}
	default:
		f.fire(b, before, ev)
	}
}

// miss records that a trouble begins or ends while another engine or no engine sends the notices of its subject. If it
// is another engine, this engine loses the subject, or know is called.
func (f *feed) miss(b *batch, ev *event) {
	m := f.missedBy(b, ev.Subject)
	switch {
	case ev.forgotten:
		b.missed[ev.Subject] = nil
	case ev.own == firing && m == nil && !ev.held && f.toldBy(b, ev.Subject) == nil && f.spec.Selection.selects(ev):
		b.missed[ev.Subject] = &missed{event: *ev}
	case ev.own == firing && m != nil:
		b.missed[ev.Subject] = &missed{event: m.event} // it continues
	case ev.own == well && m != nil && m.endedAt.IsZero():
		b.missed[ev.Subject] = &missed{m.event, ev.At}
	}
}

// makeUp adds the notice of a missed trouble that has ended. Its end is reported next.
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

// missedBy returns the missed trouble of a subject as it is once the receiver has accepted a batch, or nil.
func (f *feed) missedBy(b *batch, s Subject) *missed {
	if m, ok := b.missed[s]; ok {
		return m
	}
	return f.missed[s]
}

// settle is the time after a notice in which the receiver is not notified of other states of the same trouble, since a
// failing instance goes through several within a second. After that time it is notified of the state then.
const settle = 5 * time.Second

// sentAt returns when the receiver was last sent the trouble of a subject, or now if that is in the batch.
func (f *feed) sentAt(b *batch, s Subject, now time.Time) time.Time {
	if _, fresh := b.told[s]; fresh {
		return now
	}
	return f.told[s].sent
}

// toldBy returns the accepted notice of a subject in trouble as it is once the receiver has accepted a batch, or nil.
func (f *feed) toldBy(b *batch, s Subject) *Notice {
	if n, ok := b.told[s]; ok {
		return n
	}
	if t, ok := f.told[s]; ok {
		return &t.Notice
	}
	return nil
}

// end adds a notice that a subject is no longer in trouble, with the same labels as the notice of the trouble.
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

// fire adds a notice that a subject is in trouble, unless the receiver already knows the trouble and the state.
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
	b.told[n.Subject] = &n // also if only the reason has changed: repetitions have it
}

// labels returns the labels of an event's subject, overridden by those of the notifier.
func (f *feed) labels(ev *event) map[string]string {
	all := make(map[string]string, len(ev.Labels)+len(f.spec.Labels))
	maps.Copy(all, ev.Labels)
	maps.Copy(all, f.spec.Labels)
	return all
}

// repeat repeats notices that are due and still valid. It includes subjects of other engines, since possibly no engine
// can report now, but not those that are well: the engine responsible may already have reported their end.
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

// accept updates the feed after the receiver has accepted a batch. It returns the subjects whose accepted notice has
// changed, each with whether there was one before.
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
			continue // the receiver may have been notified by the other engine since
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

// resumeCursor returns the cursor from which the next engine resumes, so that it reports the waiting events.
func (f *feed) resumeCursor() uint64 {
	cursor := f.cursor
	for _, queue := range f.waiting {
		cursor = min(cursor, queue[0].seq-1)
	}
	return cursor
}

// know replaces the accepted notice of a subject by n, as if it had just been sent, or removes it if n is nil, and opens
// the subject. It returns false if there is nothing to compare, since there was no notice and n is nil.
func (f *feed) know(s Subject, n *Notice, now time.Time) (isKnown bool) {
	delete(f.missed, s) // another engine could report it
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

// mark opens a subject. It is compared after this call, even if it is being compared now.
func (f *feed) mark(s Subject) {
	f.marks++
	f.open[s] = f.marks
}

// release opens the held subjects, to check whether they may be reported now.
func (f *feed) release() {
	for subject := range f.held {
		f.mark(subject)
	}
	clear(f.held)
}

// compareAll opens all subjects that are in trouble or have an accepted notice.
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
