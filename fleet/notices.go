package fleet

import "time"

// Notices is the memory of what receivers were told about targets and groups, which *notify.Notifiers has. A Fleet calls its
// methods on one goroutine at a time. They must not block.
type Notices interface {
	// Notified returns what receivers know of a target that is in trouble, the same bytes while that is the same; nil if
	// they know of no trouble. When that has changed, the Fleet is to be told by NoticesChanged.
	Notified(target string) []byte

	// SetNotified makes receivers know of a target what the owner before has stored that they know. An error says that the
	// value cannot be read: they may be told again. It is called before Fleet.MayNotify reports true for the target.
	SetNotified(target string, value []byte) error

	// NotifiedOfGroup and SetNotifiedOfGroup are the same for a group, about which the engine tells that owns the shard of its name.
	NotifiedOfGroup(group string) []byte
	SetNotifiedOfGroup(group string, value []byte) error
}

// MayNotify reports whether this engine may tell receivers about a target or a group of a name now: it owns the shard, its lease
// lasts, and the store has answered a moment ago. What receivers are told without the store the next owner does not know, and
// tells them again. Any goroutine may call it.
func (f *Fleet) MayNotify(name string) bool {
	c := f.config.Coordinator
	return c.Acts().MayBegin(name) && time.Since(c.Heard()) < c.TTL()*2/5 // the lease is renewed four times in a ttl
}

// NoticesChanged says that receivers were told something about a target or a group of a name: it is stored for the next
// owner, soon. It does not block.
func (f *Fleet) NoticesChanged(name string) { f.changes.note(name) }

func (f *Fleet) setNotified(c *change) {
	for target, told := range c.told {
		if err := f.config.Notices.SetNotified(target, told); err != nil { // of another release
			f.sparse.Warn("what receivers were told cannot be read, they may be told again", "target", target, "error", err)
		}
	}
	for group, told := range c.toldOfGroups {
		if err := f.config.Notices.SetNotifiedOfGroup(group, told); err != nil {
			f.sparse.Warn("what receivers were told about a group cannot be read, they may be told again", "group", group, "error", err)
		}
	}
}
