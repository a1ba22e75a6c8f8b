package vote

import (
	"context"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
)

// Follow calls changed with each joint verdict of the fleet, and with each change of one, until ctx is done. One
// that was deleted has the zero Joint; one that was deleted while the store could not be read is left out. Changed
// is called by one goroutine, must return soon, and may be called with the same joint verdict again.
//
// The store sends the votes of all engines, too: a fleet with many probes that have a quorum should follow no more
// than it needs.
func (v *Voter) Follow(ctx context.Context, changed func(probe.ID, Joint)) {
	v.config.Coordinator.Follow(ctx, "the joint verdicts of the fleet cannot be followed, trying again", func(ctx context.Context) error {
		return followJoints(ctx, v.backend, changed)
	})
}

// followJoints calls changed with each joint verdict until ctx is done or the store returns an error.
func followJoints(ctx context.Context, b coord.Backend, changed func(probe.ID, Joint)) error {
	return coord.FollowEntries(ctx, b, JointPrefix, func(events []coord.Event, _ bool) {
		for _, e := range events {
			if id, j, ok := ParseJoint(e); ok {
				changed(id, j)
			}
		}
	})
}
