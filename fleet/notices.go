package fleet

import "time"

// Notices keeps the record of the notices that receivers got about targets and groups, as *notify.Notifiers does. A
// Fleet calls its methods from one goroutine at a time. They must not block.
type Notices interface {
	// Notified returns what receivers know about a target that is in trouble: equal bytes while that is unchanged, and nil
	// if they know of no trouble. After a change, NoticesChanged of the Fleet must be called.
	Notified(target string) []byte

	// SetNotified restores what receivers know about a target, as the previous owner stored it. It returns an error if the
	// value cannot be read; then receivers may be notified again. It is called before Fleet.MayNotify reports true for the
	// target.
	SetNotified(target string, value []byte) error

	// NotifiedOfGroup and SetNotifiedOfGroup do the same for a group. The owner of the shard of the group's name sends its
	// notices.
	NotifiedOfGroup(group string) []byte
	SetNotifiedOfGroup(group string, value []byte) error
}

// MayNotify reports whether this engine may notify receivers about the target or group of a name now: it owns the shard,
// its lease is valid, and the store has responded recently. If it sent notices without the store, the next owner would
// not know of them and would repeat them. Any goroutine may call it.
func (f *Fleet) MayNotify(name string) bool {
	c := f.config.Coordinator
	return c.Acts().MayBegin(name) && time.Since(c.Heard()) < c.TTL()*2/5 // the lease is renewed four times per TTL
}

// NoticesChanged schedules what receivers know about the named target or group to be stored soon, so that the next
// owner can read it. It
// does not block.
func (f *Fleet) NoticesChanged(name string) { f.changes.note(name) }

func (f *Fleet) setNotified(c *change) {
	for target, told := range c.told {
		if err := f.config.Notices.SetNotified(target, told); err != nil { // written by another release
			f.sparse.Warn("cannot read the record of notices; receivers may get notices again", "target", target, "error", err)
		}
	}
	for group, told := range c.toldOfGroups {
		if err := f.config.Notices.SetNotifiedOfGroup(group, told); err != nil {
			f.sparse.Warn("cannot read the record of notices of a group; receivers may get notices again", "group", group, "error", err)
		}
	}
}
