package notify

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// The keys of values. The key of a cursor sorts before those of its notices: see store.Values.
const (
	keyCursor = "cursor/" // plus a JSON list of notifier and receiver: a cursor
	keyTold   = "told/"   // plus a JSON list of notifier, receiver, kind and name: a Notice
	keyLast   = "last"    // the number of the last transition
)

// cursor is the position of a receiver in the history.
type cursor struct {
	After uint64 `json:"after"`
	Lost  uint64 `json:"lost,omitempty"`
}

// memory is the remembered state of a receiver.
type memory struct {
	cursor
	told    map[Subject]Notice
	unsaved map[Subject]unsaved // taken over from the replaced receiver; nil after a restart
}

// unsaved is a change of the notice of a subject since Value last returned it.
type unsaved struct {
	before  cursor
	wasTold bool // the value before the change is a notice
}

type memories map[receiverKey]*memory

func listKey(prefix string, parts ...string) string {
	text, _ := json.Marshal(parts) // has no error
	return prefix + string(text)
}

func (r *receiver) cursorKey() string {
	return listKey(keyCursor, r.key.Notifier, r.key.Receiver)
}

func (r *receiver) toldKey(s Subject) string {
	return listKey(keyTold, r.key.Notifier, r.key.Receiver, string(s.Kind), s.Name)
}

// keys returns the keys of all values of the receiver, that of its cursor last: see cursorToSave.
func (r *receiver) keys() (keys []string) {
	r.feedMu.Lock()
	defer r.feedMu.Unlock()
	for s := range r.feed.told {
		keys = append(keys, r.toldKey(s))
	}
	for s := range r.unsaved {
		if _, isTold := r.feed.told[s]; !isTold {
			keys = append(keys, r.toldKey(s)) // the end of a trouble, which has no value
		}
	}
	return append(keys, r.cursorKey())
}

// latestCursor returns the cursor after all accepted notices, saved or not. The caller must hold feedMu.
func (r *receiver) latestCursor() cursor { return cursor{r.feed.resumeCursor(), r.feed.lost} }

// noteUnsaved records that the notice of a subject has changed. When a trouble whose start was not saved ends, its
// record is deleted, so that ended troubles do not accumulate while nothing is saved. The caller must hold feedMu.
func (r *receiver) noteUnsaved(s Subject, change unsaved) {
	if first, isNoted := r.unsaved[s]; isNoted {
		change = first
	}
	r.unsaved[s] = change
	if _, isTold := r.feed.told[s]; !isTold && !change.wasTold {
		delete(r.unsaved, s)
	}
}

// cursorToSave returns the latest cursor that precedes all unsaved notices, and whether there are none. If the start of
// a trouble was not saved, an engine with a later cursor would not send its end. If the end was not saved, it would not
// send the next start. The caller must hold feedMu.
func (r *receiver) cursorToSave() (c cursor, isLatest bool) {
	c = r.latestCursor()
	for _, change := range r.unsaved {
		c.After = min(c.After, change.before.After)
		c.Lost = min(c.Lost, change.before.Lost)
	}
	return c, len(r.unsaved) == 0
}

// memory returns the state of the receiver to be remembered.
func (r *receiver) memory() *memory {
	r.feedMu.Lock()
	defer r.feedMu.Unlock()
	m := &memory{cursor: r.latestCursor(), told: make(map[Subject]Notice, len(r.feed.told)), unsaved: maps.Clone(r.unsaved)}
	for s, t := range r.feed.told {
		m.told[s] = t.Notice
	}
	return m
}

// resume makes the receiver resume from a memory. Without one, it starts with the subjects that are in trouble now.
func (r *receiver) resume(m *memory) {
	r.feedMu.Lock()
	defer r.feedMu.Unlock()
	r.resumed = true
	if m == nil {
		r.feed.skip()
	} else {
		r.feed.lost, r.feed.cursor = m.Lost, m.After
		for s, n := range m.told {
			r.feed.told[s] = told{Notice: n}
		}
		maps.Copy(r.unsaved, m.unsaved)
	}
	r.feed.compareAll()
}

// Value returns the value of a key that Config.Changed was called with, which can be written as JSON, or false if it has
// none any more. With all values the next engine resumes where this one stopped.
//
// The caller must save each value, and before the values of later calls: Value counts a notice as saved once it has
// returned it. While notices before a cursor are not saved, Value returns an earlier cursor and calls Config.Changed
// with its key again.
func (n *Notifiers) Value(key string) (value any, ok bool) {
	if key == keyLast {
		_, last := n.targets.after(0, 0)
		return last, true
	}
	parts := keyParts(key)
	if len(parts) < 2 {
		return nil, false
	}
	r := n.receiver(receiverKey{parts[0], parts[1]})
	if r == nil {
		return nil, false
	}
	if len(parts) == 4 {
		return r.toldValue(Subject{Kind(parts[2]), parts[3]})
	}
	r.feedMu.Lock()
	c, isLatest := r.cursorToSave()
	r.feedMu.Unlock()
	if !isLatest {
		r.changed([]string{key})
	}
	return c, true
}

// toldValue returns the notice of a subject, and counts it as saved.
func (r *receiver) toldValue(s Subject) (value any, ok bool) {
	r.feedMu.Lock()
	defer r.feedMu.Unlock()
	delete(r.unsaved, s)
	t, ok := r.feed.told[s]
	return t.Notice, ok
}

// keyParts returns the list in the key of a cursor or of a notice, or nil.
func keyParts(key string) (parts []string) {
	for prefix, n := range map[string]int{keyCursor: 2, keyTold: 4} {
		if text, ok := strings.CutPrefix(key, prefix); ok && json.Unmarshal([]byte(text), &parts) == nil && len(parts) == n {
			return parts
		}
	}
	return nil
}

// receiver returns a receiver, or nil.
func (n *Notifiers) receiver(key receiverKey) *receiver {
	n.allMu.Lock()
	defer n.allMu.Unlock()
	for r := range n.receivers() {
		if r.key == key {
			return r
		}
	}
	return nil
}

// Keys returns the keys of all values. There are none without receivers.
func (n *Notifiers) Keys() (keys []string) {
	for i, r := range n.allReceivers() {
		if i == 0 {
			keys = append(keys, keyLast)
		}
		keys = append(keys, r.keys()...)
	}
	return keys
}

// TransitionsChanged must be called when the engine's history has grown: it wakes the receivers. It never blocks.
func (n *Notifiers) TransitionsChanged() {
	n.config.Changed(keyLast)
	n.wake.Set()
}

// Restore makes the receivers of the first Plan resume from the values of an earlier engine, whose history may or may
// not have been restored. It returns the errors of values that could not be read. It must be called before Plan.
func (n *Notifiers) Restore(values map[string][]byte) (wrong []error) {
	n.allMu.Lock()
	defer n.allMu.Unlock()
	for key, value := range values {
		if err := n.restore(key, value); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", key, err))
		}
	}
	for _, m := range n.saved { // the engine may have saved a cursor that is ahead of its saved history
		n.config.Engine.Records().SkipTransitions(m.After)
	}
	return wrong
}

// restore restores one value. The caller must hold allMu.
func (n *Notifiers) restore(key string, value []byte) error {
	if key == keyLast {
		var last uint64
		err := json.Unmarshal(value, &last)
		n.config.Engine.Records().SkipTransitions(last)
		return err
	}
	parts := keyParts(key)
	if parts == nil {
		return nil // of a later version
	}
	of := receiverKey{parts[0], parts[1]}
	if n.saved[of] == nil {
		n.saved[of] = &memory{told: map[Subject]Notice{}}
	}
	if len(parts) == 2 {
		return json.Unmarshal(value, &n.saved[of].cursor)
	}
	var notice Notice
	if err := json.Unmarshal(value, &notice); err != nil {
		return err
	}
	n.saved[of].told[Subject{Kind(parts[2]), parts[3]}] = notice
	return nil
}
