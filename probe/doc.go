// Package probe defines the types that all other packages share: the target of a probe (Target, Instance), its schedule and
// thresholds (Rule), its method (Handler), the result of one attempt (Result) and the published verdict (Verdict).
//
// It imports only the standard library, starts no goroutines and reads no clock. Every zero value is safe: it never means
// healthy.
//
//	probe.go       Kind, ID, Probe and Set
//	target.go      Target, Instance and its Phase
//	network.go     Network: the network of this machine from which a target is probed
//	labels.go      CheckLabels: the labels of a target
//	selector.go    Selector: selects targets by their names and labels
//	rule.go        Rule: when to attempt, and the thresholds
//	policy.go      Policy: how outcomes add up to a verdict; Effect: what a failing probe means
//	damping.go     Damping: when a flapping target is damped
//	handler.go     Handler, and the optional interfaces of handlers
//	result.go      Outcome, Verdict and Result
//	outcomes.go    OutcomeRun: consecutive equal outcomes, and their text format
//	facts.go       Facts: what an attempt learned about the peer
//	trace.go       Trace: details of one attempt, recorded on request
//	reason.go      Reason: stable codes for the cause of an outcome or of an instance's phase
//	state.go       TargetState: the state of a target in one word
//	gateway.go     GatewayState: how a gateway treats a target; Observation: what it observed
//	fielderror.go  FieldError: an invalid field of a configuration
//	share.go       Share: a percentage
//	names.go       the texts of enumerations
package probe
