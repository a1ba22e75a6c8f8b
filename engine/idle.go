package engine

import "container/list"

// idleInstances are the instances of targets that have lost their probes and have no driver. They are restored when the targets
// get probes again. If there are too many, the oldest is discarded. registry.mu guards them.
type idleInstances struct {
	byAge  list.List // of idleInstance, the oldest first
	byName map[string]*list.Element
	most   int // maximum number of probes so far, and thus of idle instances
}

type idleInstance struct {
	target   string
	instance *instance
}

// minIdleInstances is the number of idle instances that an engine can keep regardless of its probes.
const minIdleInstances = 1024

// keep stores the instance of a target.
func (l *idleInstances) keep(target string, in *instance) {
	l.byName[target] = l.byAge.PushBack(idleInstance{target, in})
	if l.byAge.Len() > max(minIdleInstances, l.most) {
		l.take(l.byAge.Front().Value.(idleInstance).target)
	}
}

// take removes and returns the instance of a target, or returns nil.
func (l *idleInstances) take(target string) *instance {
	e := l.byName[target]
	if e == nil {
		return nil
	}
	delete(l.byName, target)
	return l.byAge.Remove(e).(idleInstance).instance
}
