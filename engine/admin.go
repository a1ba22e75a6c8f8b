package engine

import "github.com/sonde-probe/sonde/probe"

// Admin changes how targets are treated regardless of the results of their probes: pauses, dependencies, dampings and labels. It
// affects neither attempts nor verdicts. All methods are safe for concurrent use by multiple goroutines.
type Admin struct{ engine *Engine }

// Admin returns the Admin of the engine's targets.
func (e *Engine) Admin() Admin { return Admin{e} }

// Withdraw cancels the last Report of a target's instance, unless the target has probes. It is for a target that left this
// engine: the target may return before the reporter of its instance learns of that.
func (a Admin) Withdraw(target string) {
	sc := a.engine.scheduler
	sc.mu.Lock()
	defer sc.unlock()
	if _, slots := a.engine.registry.target(target); len(slots) == 0 {
		sc.setReported(probe.Instance{Target: target, Phase: probe.Absent})
	}
}

// Records are an engine's records about its targets that the next engine resumes from, in addition to the Memories of their
// probes: transitions, outcomes and penalties. Config.Recorded is called when a record has changed. All methods are safe for
// concurrent use by multiple goroutines.
type Records struct{ engine *Engine }

// Records returns the Records of the engine's targets.
func (e *Engine) Records() Records { return Records{e} }
