package notify

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// handover is what a receiver was told about a target or a group, as it is passed to another engine. What changes while a
// trouble lasts and is not told, such as a detail, is not part of it: the other engine knows it from the target.
type handover struct {
	Notifier string            `json:"notifier"`
	Receiver string            `json:"receiver"` // its key
	State    string            `json:"state"`
	Severity probe.Severity    `json:"severity"`
	Labels   map[string]string `json:"labels,omitempty"`
	StartsAt time.Time         `json:"startsAt"`
}

// Notified returns what the receivers know of a target that is in trouble, the same bytes while that is the same; nil if
// they know of no trouble. With SetNotified another engine goes on from there.
func (n *Notifiers) Notified(target string) []byte { return n.toldOf(Subject{KindTarget, target}) }

// NotifiedOfGroup is Notified for a group.
func (n *Notifiers) NotifiedOfGroup(group string) []byte { return n.toldOf(Subject{KindGroup, group}) }

func (n *Notifiers) toldOf(subject Subject) []byte {
	var all []handover
	for _, r := range n.allReceivers() {
		r.feedMu.Lock()
		t, ok := r.feed.told[subject]
		r.feedMu.Unlock()
		if ok {
			all = append(all, handover{r.key.Notifier, r.key.Receiver, t.State, t.Severity, t.Labels, t.StartsAt.UTC().Truncate(time.Millisecond)})
		}
	}
	if all == nil {
		return nil
	}
	slices.SortFunc(all, func(a, b handover) int {
		return strings.Compare(listKey("", a.Notifier, a.Receiver), listKey("", b.Notifier, b.Receiver))
	})
	value, _ := json.Marshal(all) // has no error
	return value
}

// SetNotified makes all receivers know of a target what those of another engine knew, which Notified has returned there: of the
// trouble that this is about they are told its end, and other states, but not again that it has begun. Call it before
// Config.MayNotify reports true for the target. If the value cannot be read, it changes nothing.
func (n *Notifiers) SetNotified(target string, value []byte) error {
	return n.setNotified(Subject{KindTarget, target}, value)
}

// SetNotifiedOfGroup is SetNotified for a group. Call it before Config.NotifierOf returns ThisEngine for the group.
func (n *Notifiers) SetNotifiedOfGroup(group string, value []byte) error {
	return n.setNotified(Subject{KindGroup, group}, value)
}

func (n *Notifiers) setNotified(subject Subject, value []byte) error {
	var all []handover
	if value != nil {
		if err := json.Unmarshal(value, &all); err != nil {
			return fmt.Errorf("what receivers were told: %w", err)
		}
	}
	now := time.Now()
	by := make(map[receiverKey]*Notice, len(all))
	for _, h := range all {
		by[receiverKey{h.Notifier, h.Receiver}] = &Notice{
			Subject: subject, Firing: true, State: h.State, Severity: h.Severity, Labels: h.Labels, StartsAt: h.StartsAt, At: h.StartsAt,
		}
	}
	n.allMu.Lock() // no receiver is replaced meanwhile
	defer n.allMu.Unlock()
	for r := range n.receivers() {
		notice := by[r.key]
		if notice != nil {
			notice.Link = link(r.spec.ExternalURL, subject) // of this engine
		}
		r.feedMu.Lock()
		_, wasNotified := r.feed.told[subject]
		hasChanged := r.feed.know(subject, notice, now)
		if hasChanged {
			r.noteUnsaved(subject, unsaved{r.latestCursor(), wasNotified})
		}
		r.feedMu.Unlock()
		if hasChanged { // of most targets of an owner that has died receivers know nothing
			r.changed([]string{r.toldKey(subject)})
			r.wakeUp(nil, false)
		}
	}
	return nil
}

// NotifiedSubject returns the target or group if a key is that of the value that says what a receiver was told about it: that
// Notified or NotifiedOfGroup may return something else now.
func NotifiedSubject(key string) (s Subject, ok bool) {
	parts := keyParts(key)
	if len(parts) != 4 || !slices.Contains(kinds, Kind(parts[2])) {
		return Subject{}, false
	}
	return Subject{Kind(parts[2]), parts[3]}, true
}

// allReceivers returns the receivers of all notifiers.
func (n *Notifiers) allReceivers() []*receiver {
	n.allMu.Lock()
	defer n.allMu.Unlock()
	return slices.Collect(n.receivers())
}
