package engine

import "github.com/sonde-probe/sonde/probe"

// Admin changes what is done about targets whatever their probes find out: pauses, dependencies, dampings and labels. It
// changes no attempt and no verdict. All methods are safe for concurrent use by multiple goroutines.
type Admin struct{ engine *Engine }

// Admin returns the Admin of the engine's targets.
func (e *Engine) Admin() Admin { return Admin{e} }

// Withdraw says that what Report has said of a target's instance does not hold any more, unless the target has probes: one that
// has left an engine may be back before who has reported its instance knows.
func (a Admin) Withdraw(target string) {
	sc := a.engine.scheduler
	sc.mu.Lock()
	defer sc.unlock()
	if _, slots := a.engine.registry.target(target); len(slots) == 0 {
		sc.setReported(probe.Instance{Target: target, Phase: probe.Absent})
	}
}

// Records are what an engine remembers of its targets for the one that is started after it, beside the Memories of their
// probes: transitions, outcomes and penalties. Config.Recorded is called when one has changed. All methods are safe for
// concurrent use by multiple goroutines.
type Records struct{ engine *Engine }

// Records returns the Records of the engine's targets.
func (e *Engine) Records() Records { return Records{e} }
