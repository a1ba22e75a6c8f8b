package engine

// What tests of the package from outside need.
const (
	EjectAfter        = ejectAfter
	MaxHistory        = maxHistory
	MaxOutcomes       = maxOutcomes
	MaxTransitionText = maxTransitionText
	MaxTransitions    = maxTransitions
)

// TroubledDependency is what Suppressed asks.
func (a Admin) TroubledDependency(target string) string { return a.troubledDependency(target) }

// Decided reports whether it is known whether the target is ready.
func (g *TargetGauge) Decided() bool { return g.isDecided() }
