package engine

import (
	"time"

	"github.com/sonde-probe/sonde/engine/internal/timeline"
)

// settleDelay is how long answers are collected before they settle results.
const settleDelay = int64(10 * time.Millisecond)

// unsettled are the attempts that have ended without an answer before their timeout, and
// whose results are judged later: by the answers of others, at the latest when the timeout
// has passed. Each is the attempt in flight of its slot.
type unsettled struct {
	ends      timeline.Timeline // when the attempts ended, by the keys of their slots
	deadlines timeline.Timeline // when their timeouts have passed, likewise
	due       int64             // when there is evidence to judge the first ones by; 0: there is none
}

// next returns when they have to be judged; never if there is none.
func (u *unsettled) next() int64 {
	_, at, ok := u.deadlines.First()
	switch {
	case !ok:
		return never
	case u.due != 0:
		return min(at, u.due)
	}
	return at
}

func (u *unsettled) add(a *attempt) {
	if _, _, ok := u.ends.First(); !ok {
		u.due = 0
	}
	u.ends.Set(a.slot.key, a.ended())
	u.deadlines.Set(a.slot.key, a.start+int64(a.spec.rule.Timeout))
}

// remove removes the attempt of a slot, if it is there.
func (u *unsettled) remove(key uint32) {
	u.ends.Remove(key)
	u.deadlines.Remove(key)
}

// prove says that an attempt which began at began was answered.
func (u *unsettled) prove(began, now int64) {
	if _, ended, ok := u.ends.First(); ok && ended < began && (u.due == 0 || u.due > now+settleDelay) {
		u.due = now + settleDelay
	}
}

// expired returns the slot whose attempt's timeout has passed first.
func (u *unsettled) expired(now int64) (key uint32, ok bool) {
	key, at, ok := u.deadlines.First()
	return key, ok && at <= now
}
