package restart

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// DisruptionBudget withholds restarts so that enough targets of a group take requests, as a PodDisruptionBudget of
// Kubernetes does, and as *group.Groups does. Its methods are called by multiple goroutines, and must not block.
type DisruptionBudget interface {
	// Acquire returns the name of a group that withholds the restart of an instance, "" for none: the instance may be
	// terminated then, and counts as one that takes no requests until another one of its target does, or Release is
	// called. A forced restart is made, and counts, although a group withholds it. Acquire is called again for the same
	// instance, every second while its restart is withheld.
	Acquire(target, instance string, forced bool) (withheldBy string)

	// Release says that the restart of a target that Acquire was asked for is no longer wanted, or has failed: the
	// instance goes on.
	Release(target string)
}

// unlimited is the DisruptionBudget of a Controller without one.
type unlimited struct{}

func (unlimited) Acquire(string, string, bool) string { return "" }
func (unlimited) Release(string)                      {}

// acquire asks the disruption budget for the restart.
func (i *instance) acquire(now time.Time, _ probe.ID) delay {
	i.acquired = true
	group := i.supervisor.control.config.Disruptions.Acquire(i.supervisor.target, i.id, false)
	if group == "" {
		return delay{}
	}
	return delay{reason: probe.ReasonFloor, until: now.Add(healthInterval), detail: withheldDetail(group), group: group}
}

// free ends what acquire has begun, if the instance is not being terminated.
func (i *instance) free() {
	if i.acquired {
		i.acquired = false
		i.supervisor.control.config.Disruptions.Release(i.supervisor.target)
	}
}

// withheldDetail says to people which group withholds a restart.
func withheldDetail(group string) string {
	return fmt.Sprintf("the group %s would have fewer than min_ready ready members without it", group)
}
