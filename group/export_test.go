package group

import (
	"time"

	"github.com/sonde-probe/sonde/engine"
)

// Fold folds the status of a target, as one that was read at a moment.
func (g *Groups) Fold(st engine.TargetStatus) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fold(&st, time.Now())
}
