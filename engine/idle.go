package engine

import "container/list"

// idleInstances are the instances of targets that have lost their probes and have no
// driver: they are as they were reported when the targets get probes again. The oldest
// is forgotten when there are too many. registry.mu guards them.
type idleInstances struct {
	byAge  list.List // of idleInstance, the oldest first
	byName map[string]*list.Element
	most   int // how many probes there have been at a time: at most as many are kept
}

type idleInstance struct {
	target   string
	instance *instance
}

// minIdleInstances is how many idle instances an engine keeps at least.
const minIdleInstances = 1024

// keep keeps the instance of a target.
func (l *idleInstances) keep(target string, in *instance) {
	l.byName[target] = l.byAge.PushBack(idleInstance{target, in})
	if l.byAge.Len() > max(minIdleInstances, l.most) {
		l.take(l.byAge.Front().Value.(idleInstance).target)
	}
}

// take returns the instance of a target, or nil, and keeps it no longer.
func (l *idleInstances) take(target string) *instance {
	e := l.byName[target]
	if e == nil {
		return nil
	}
	delete(l.byName, target)
	return l.byAge.Remove(e).(idleInstance).instance
}
