package guard

import (
	"cmp"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
)

// terminate asks the command to exit, once, and returns a channel that fires at the end of the grace period. A later
// call can only shorten the grace period. The guard keeps the time, since the engine may exit in the meantime.
func (g *guard) terminate(o Order) <-chan time.Time {
	by := time.Now().Add(o.Grace)
	if g.killAt.IsZero() {
		command.Signal(g.tree.Pid, cmp.Or(o.StopSignal, syscall.SIGTERM))
	}
	if g.killAt.IsZero() || by.Before(g.killAt) {
		g.killAt = by
	}
	return time.After(time.Until(g.killAt))
}

// maxKillInterval is the maximum time between two kills of descendants that do not die: processes that hang in the
// kernel, or belong to another user.
const maxKillInterval = 100 * time.Millisecond

// killAll kills and reaps until no descendant is left. Killing the guard's children is enough: when they die, their
// children become the guard's.
func (g *guard) killAll() {
	for pause := time.Millisecond; ; pause = min(2*pause, maxKillInterval) {
		g.killOnce()
		if !g.reap() {
			return
		}
		select {
		case <-g.children:
		case <-time.After(pause):
		}
	}
}

func (g *guard) killOnce() {
	g.tree.Cgroup.kill()
	if !g.ended {
		command.Signal(g.tree.Pid, syscall.SIGKILL)
	} else if !IsSubreaper {
		command.KillGroup(g.tree.Pid)
	}
	for _, pid := range children() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
