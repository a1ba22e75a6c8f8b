package restart

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// Floor withholds restarts so that enough targets of a group take requests, as *group.Groups does. Its methods are
// called by multiple goroutines, and must not block.
type Floor interface {
	// Reserve returns the name of a group that withholds the restart of an instance, "" for none: the instance may be
	// terminated then, and counts as one that takes no requests until another one of its target does, or Release is
	// called. A forced restart is made, and counts, although a group withholds it. Reserve is called again for the same
	// instance, every second while its restart is withheld.
	Reserve(target, instance string, forced bool) (withheldBy string)

	// Release says that the restart of a target that Reserve was asked for is no longer wanted, or has failed: the
	// instance goes on.
	Release(target string)
}

// noFloor is the Floor of a Controller without one.
type noFloor struct{}

func (noFloor) Reserve(string, string, bool) string { return "" }
func (noFloor) Release(string)                      {}

// reserve asks the floor for the restart that a failing probe wants, or postpones it.
func (i *instance) reserve(now time.Time, failing engine.Status) bool {
	i.reserves = true
	if i.withheldBy = i.control.config.Floor.Reserve(i.target, i.id, false); i.withheldBy != "" {
		i.postpone(now, now.Add(healthInterval), probe.ReasonFloor, failing)
	}
	return i.withheldBy == ""
}

// unreserve ends what reserve has begun, if the instance is not being terminated.
func (i *instance) unreserve() {
	if i.reserves {
		i.reserves, i.withheldBy = false, ""
		i.control.config.Floor.Release(i.target)
	}
}

// withheldDetail says to people which group withholds a restart.
func withheldDetail(group string) string {
	return fmt.Sprintf("the group %s would have fewer than min_ready ready members without it", group)
}
