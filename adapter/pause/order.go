package pause

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/probe"
)

// Order is what operators have ordered about a target: its Pause, or that this has ended. It can be written as JSON.
// Those of shared targets are numbered, so that engines find out which one replaces which, whatever their clocks show and
// the store has lost.
type Order struct {
	Pause
	IsEnd  bool   `json:"end,omitzero"`    // Pause has ended; At and By are those of the end
	Number int64  `json:"number,omitzero"` // from 1: see record.give; 0: of a target that is not shared
	Base   int64  `json:"base,omitzero"`   // the number of the latest stored order that it replaces
	Author string `json:"author,omitzero"` // the engine that has given Number, and its start

	Known       int64  `json:"known,omitzero"`        // the number of the latest order that it replaces, stored or not
	KnownAuthor string `json:"known_author,omitzero"` // and the author of that
}

// isInForce reports whether the order pauses the target.
func (o Order) isInForce(now time.Time) bool { return o.Number > 0 && !o.IsEnd && !o.hasEnded(now) }

// pausesLonger reports whether the order pauses the target longer than another one.
func (o Order) pausesLonger(other Order, now time.Time) bool {
	if !o.isInForce(now) || !other.isInForce(now) {
		return o.isInForce(now)
	}
	return !other.Until.IsZero() && (o.Until.IsZero() || o.Until.After(other.Until))
}

// is reports whether it is the same order as another one.
func (o Order) is(other Order) bool {
	return o.Number > 0 && o.Author == other.Author && o.Number == other.Number
}

// replaces reports whether its author knew another one as the latest.
func (o Order) replaces(other Order) bool {
	return other.Number > 0 && o.Known == other.Number && o.KnownAuthor == other.Author
}

// isBefore reports whether it is an earlier order than another one, of the same author.
func (o Order) isBefore(other Order) bool { return o.Author == other.Author && o.Number < other.Number }

// onWallClock is Pause.onWallClock.
func (o Order) onWallClock(now time.Time) Order {
	o.Pause = o.Pause.onWallClock(now)
	return o
}

// onMonotonicClock is Pause.onMonotonicClock.
func (o Order) onMonotonicClock(now time.Time) Order {
	if o == (Order{}) {
		return o
	}
	o.Pause = o.Pause.onMonotonicClock(now)
	return o
}

// record is what an engine knows of the orders about a shared target. The zero record is that there was none.
type record struct {
	latest   Order          // in force here: stored, or to be stored
	unsaved  bool           // it is not stored yet
	modified coord.Revision // of the entry that the store has; 0: it has none
}

// give returns what is known after an operator has asked for something. The number of the order is higher than that of
// the one that it replaces, and at least its time in milliseconds: so it is also higher than those that the author cannot
// know, since the store has lost them, or has deleted them when the target was gone.
func (r record) give(o Order, author string) record {
	o.Author, o.Number, o.Base = author, max(r.latest.Number+1, o.At.UnixMilli()), r.latest.Base
	o.Known, o.KnownAuthor = r.latest.Number, r.latest.Author
	if !r.unsaved {
		o.Base = r.latest.Number
	}
	r.latest, r.unsaved = o, true
	return r
}

// see returns what an engine knows after the store has shown it an order, the zero Order for none that can be read, and
// whether an order that was not stored yet has been given up for it.
//
// An order that is to be stored replaces the one that it is based on, and those before that. Two orders may not know of each
// other: one was stored while the other could not be, or was given when the store had lost the other. Then the one counts
// that pauses the target longer, since an operator may still work on it; if neither does, the one that is stored later. A stored order
// with a lower number than one that was stored before is that of a backup from which the store was restored.
func (r record) see(stored Order, modified coord.Revision, author string, now time.Time) (after record, isGivenUp bool) {
	r.modified = modified
	switch {
	case stored.is(r.latest):
		r.unsaved = false
	case r.unsaved && stored.replaces(r.latest): // which was stored, though this engine had no answer
		r.latest, r.unsaved = stored, false
	case !r.unsaved && stored.Number < r.latest.Number:
		r = r.lost()
	case !r.unsaved && (stored.Known >= r.latest.Number || !r.latest.pausesLonger(stored, now)):
		r.latest = stored
	case stored.Number <= r.latest.Base || stored.isBefore(r.latest):
	case stored.pausesLonger(r.latest, now):
		return record{latest: stored, modified: modified}, true
	default:
		r.latest.Number, r.latest.Author = max(r.latest.Number, stored.Number+1), author
		r.latest.Base, r.latest.Known, r.latest.KnownAuthor = stored.Number, stored.Number, stored.Author
		r.unsaved = true
	}
	return r, false
}

// miss returns what is known after the store has been read, and has no order: none was stored, or it was lost.
func (r record) miss() record {
	r.modified = 0
	if r.latest.Number > 0 && !r.unsaved {
		return r.lost()
	}
	return r
}

// lost returns what is known after the store has lost the latest order: it is stored again, in place of all before it.
func (r record) lost() record {
	r.latest.Base, r.unsaved = r.latest.Number-1, true
	return r
}

// drop returns what is known after the entry was deleted: the target is gone, or it is long since it was paused.
func (r record) drop() record {
	if r.modified = 0; !r.unsaved {
		r.latest = Order{}
	}
	return r
}

// endLife is how long the end of a pause is stored: an engine that has missed it, and etcd restored from an older backup,
// begin the pause anew after it.
const endLife = 7 * 24 * time.Hour

// until returns when the store may delete the order; zero: never.
func (o Order) until(now time.Time) time.Time {
	switch {
	case o.IsEnd:
		return now.Add(endLife)
	case o.Until.IsZero():
		return time.Time{}
	}
	return o.Until.Add(endLife)
}

// marshal returns an order as it is stored.
func (o Order) marshal() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // it triples texts, which are bounded
	_ = e.Encode(o)        // has no error: times are those of clocks, or were read from JSON
	return bytes.TrimSpace(b.Bytes())
}

// The bounds of what is stored and read, in bytes.
const (
	maxBy     = 256
	maxWhy    = 256
	maxAuthor = 128
)

// maxNumber bounds Order.Number, so that it cannot overflow.
const maxNumber = 1 << 53

// bounded returns p with texts that are one line and not too long.
func (p Pause) bounded() Pause {
	p.By, p.Why = probe.OneLine(p.By, maxBy), probe.OneLine(p.Why, maxWhy)
	return p
}

// unmarshal returns an order that was stored, bounded and made safe again, or the zero Order if it is none.
func unmarshal(value []byte) (o Order) {
	if len(value) > coord.MaxPause || json.Unmarshal(value, &o) != nil || o.Number < 1 || o.Number > maxNumber {
		return Order{}
	}
	o.Pause, o.Author, o.KnownAuthor = o.bounded(), probe.OneLine(o.Author, maxAuthor), probe.OneLine(o.KnownAuthor, maxAuthor)
	return o
}
