package oracle

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// instance is the current instance of a container.
type instance struct {
	number int // counts from 1; 0 before the first
	phase  probe.Phase
	since  time.Time
	exit   int
	lost   bool // its state is currently unknown
	ended  bool // its exit code is known
}

// id returns the ID of the instance on both sides.
func (l instance) id(script, container string) string {
	return fmt.Sprintf("oracle://%s.%s.%d", script, container, l.number)
}

// after returns the instance after a step of its container; follows says whether an exited container is restarted.
func (l instance) after(step Step, follows bool) instance {
	next := instance{number: l.number, since: time.Now()}
	switch step.Do {
	case Wait:
		next.number++
		next.phase = probe.Waiting
	case Start:
		if l.phase != probe.Waiting || l.lost {
			next.number++
		}
		next.phase = probe.Running
	case Stall:
		next.phase = probe.Waiting
	case Resume:
		next.phase = probe.Running
	case Exit:
		next.phase, next.exit, next.ended = probe.Ended, step.Exit, true
		if !follows {
			next.phase = probe.Gone
		}
	case Lose:
		next = l
		next.lost = true
	}
	return next
}
