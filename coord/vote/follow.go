package vote

import (
	"context"

	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/probe"
)

// Follow calls changed with each joint verdict of the fleet, and with each change of one, until ctx is done. One
// that was deleted has the zero Joint; one that was deleted while the store could not be read is left out. Changed
// is called by one goroutine, must return soon, and may be called with the same joint verdict again.
//
// The store sends the votes of all engines, too: a fleet with many probes that have a quorum should follow no more
// than it needs.
func (v *Voter) Follow(ctx context.Context, changed func(probe.ID, Joint)) {
	v.follow(ctx, "the joint verdicts of the fleet cannot be followed, trying again", func(ctx context.Context) error {
		return followJoints(ctx, v.backend, changed)
	})
}

// follow calls a function that follows the store, again and again until ctx is done. Its context ends when this
// engine becomes a member, or no longer is one: a store that was restored from a snapshot has lower revisions, and
// a watch from one of the future would wait for ever.
func (v *Voter) follow(ctx context.Context, message string, f func(context.Context) error) {
	for ctx.Err() == nil {
		_, changed := v.config.Coordinator.Lease()
		following, end := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			select {
			case <-changed:
				end()
			case <-following.Done():
			}
		}()
		err := f(following)
		isStale := following.Err() != nil
		end()
		<-ended
		if !isStale {
			v.rest(ctx, message, err)
		}
	}
}

// followJoints calls changed with each joint verdict until ctx is done or the store returns an error.
func followJoints(ctx context.Context, b coord.Backend, changed func(probe.ID, Joint)) error {
	return followEntries(ctx, b, JointPrefix, func(events []coord.Event) {
		for _, e := range events {
			if id, j, ok := ParseJoint(e); ok {
				changed(id, j)
			}
		}
	})
}

// followEntries calls changed with all entries of a prefix, and then with their changes, until ctx is done or the
// store returns an error.
func followEntries(ctx context.Context, b coord.Backend, prefix string, changed func([]coord.Event)) error {
	entries, at, err := rangeOf(ctx, b, prefix)
	if err != nil {
		return err
	}
	all := make([]coord.Event, 0, len(entries))
	for _, e := range entries {
		all = append(all, coord.Event{Entry: e})
	}
	changed(all)
	for events, err := range b.Watch(ctx, prefix, at) {
		if err != nil {
			return err
		}
		changed(events)
	}
	return ctx.Err()
}
