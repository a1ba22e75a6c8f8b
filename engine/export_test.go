package engine

// Internals for tests in package engine_test.
const (
	EjectAfter        = ejectAfter
	MaxHistory        = maxHistory
	MaxOutcomes       = maxOutcomes
	MaxTransitionText = maxTransitionText
	MaxTransitions    = maxTransitions
)

// TroubledDependency is the check that Suppressed makes.
func (a Admin) TroubledDependency(target string) string { return a.troubledDependency(target) }

// Decided reports whether it is known whether the target is ready.
func (g *TargetGauge) Decided() bool { return g.isDecided() }
