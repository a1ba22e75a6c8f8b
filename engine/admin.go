package engine

// Admin changes what is done about targets whatever their probes find out: pauses, dependencies, dampings and labels. It
// changes no attempt and no verdict. All methods are safe for concurrent use by multiple goroutines.
type Admin struct{ engine *Engine }

// Admin returns the Admin of the engine's targets.
func (e *Engine) Admin() Admin { return Admin{e} }

// Records are what an engine remembers of its targets for the one that is started after it, beside the Memories of their
// probes: transitions, outcomes and penalties. Config.Recorded is called when one has changed. All methods are safe for
// concurrent use by multiple goroutines.
type Records struct{ engine *Engine }

// Records returns the Records of the engine's targets.
func (e *Engine) Records() Records { return Records{e} }
