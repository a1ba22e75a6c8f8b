package notify

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// handover is the accepted notice of a receiver about a target or group, as passed to another engine. It omits parts
// that may change during a trouble without a notice, such as the detail, which the other engine has from the target.
type handover struct {
	Notifier string            `json:"notifier"`
	Receiver string            `json:"receiver"` // its key
	State    string            `json:"state"`
	Severity probe.Severity    `json:"severity"`
	Labels   map[string]string `json:"labels,omitempty"`
	StartsAt time.Time         `json:"startsAt"`
}

// Notified returns the receivers' accepted notices of a target that is in trouble: equal bytes while they are unchanged;
// nil if there are none. Another engine resumes from them with SetNotified.
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

// SetNotified restores what Notified returned on another engine, as if the receivers of this engine had accepted those
// notices: they are notified of other states and of the end of the trouble, but not again of its beginning. It must be
// called before Config.MayNotify reports true for the target. If the value cannot be read, it changes nothing.
func (n *Notifiers) SetNotified(target string, value []byte) error {
	return n.setNotified(Subject{KindTarget, target}, value)
}

// SetNotifiedOfGroup is SetNotified for a group. It must be called before Config.NotifierOf returns ThisEngine for the
// group.
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
	n.allMu.Lock() // no receiver may be replaced meanwhile
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
		if hasChanged { // most targets of a failed owner have no notices
			r.changed([]string{r.toldKey(subject)})
			r.wakeUp(nil, false)
		}
	}
	return nil
}

// NotifiedSubject returns the target or group of the value with a key, if it is a notice: the results of Notified or
// NotifiedOfGroup may have changed.
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
