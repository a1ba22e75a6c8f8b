// Package probe defines the types that all other packages share: what is probed
// (Target, Instance), when (Rule), how (Handler), what one attempt found
// (Result) and what was decided (Verdict).
//
// It imports the standard library only, starts no goroutine and reads no
// clock. Every zero value is safe: it never means healthy.
//
//	probe.go       Kind, ID, Probe and Set
//	target.go      Target, Instance and its Phase
//	network.go     Network: from which network of this machine a target is probed
//	labels.go      CheckLabels: the labels of a target
//	selector.go    Selector: selects targets by their names and labels
//	rule.go        Rule: when to attempt, and the thresholds
//	policy.go      Policy: how outcomes add up to a verdict; Effect: what a failing one means
//	damping.go     Damping: when a target that flaps is damped
//	handler.go     Handler, and the optional interfaces of handlers
//	result.go      Outcome, Verdict and Result
//	outcomes.go    OutcomeRun: outcomes in a row, and their text
//	facts.go       Facts: what an attempt learned about the peer
//	trace.go       Trace: what one attempt learned, for tools that ask
//	reason.go      the stable codes for why an attempt or an instance ended
//	state.go       TargetState: the state of a target in one word
//	gateway.go     GatewayState: what a gateway does with a target, and its Observation
//	fielderror.go  FieldError: which field of a configuration is wrong
//	share.go       Share: a percentage
//	names.go       the texts of enumerations
package probe
