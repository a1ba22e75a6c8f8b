package restart

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// DisruptionBudget withholds restarts so that enough targets of a group can take requests, like a PodDisruptionBudget
// of Kubernetes. *group.Groups implements it. Its methods are called concurrently, and must not block.
type DisruptionBudget interface {
	// Acquire returns the name of a group that withholds the restart of an instance, or "" if none does. In the latter
	// case the instance may be terminated, and counts as taking no requests until another instance of its target takes
	// requests, or Release is called. A forced restart takes place, and counts, even if a group withholds it. While a
	// restart is withheld, Acquire is called again every second for the same instance.
	Acquire(target, instance string, forced bool) (withheldBy string)

	// Release cancels a preceding Acquire for the target, because the restart is no longer wanted or has failed: the
	// instance keeps running.
	Release(target string)
}

// unlimited is the default DisruptionBudget, which withholds nothing.
type unlimited struct{}

func (unlimited) Acquire(string, string, bool) string { return "" }
func (unlimited) Release(string)                      {}

// acquire delays the restart if the disruption budget withholds it.
func (i *instance) acquire(now time.Time, _ probe.ID) delay {
	i.acquired = true
	group := i.supervisor.control.config.Disruptions.Acquire(i.supervisor.target, i.id, false)
	if group == "" {
		return delay{}
	}
	return delay{reason: probe.ReasonFloor, until: now.Add(healthInterval), detail: withheldDetail(group), group: group}
}

// free releases the reservation that acquire has made, if any.
func (i *instance) free() {
	if i.acquired {
		i.acquired = false
		i.supervisor.control.config.Disruptions.Release(i.supervisor.target)
	}
}

// withheldDetail returns the text that explains which group withholds a restart.
func withheldDetail(group string) string {
	return fmt.Sprintf("the group %s would have fewer than min_ready ready members without it", group)
}
