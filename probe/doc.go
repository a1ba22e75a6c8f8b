// Package probe defines the types that all other packages share: what is probed
// (Target, Instance), when (Rule), how (Handler), what one attempt found
// (Result) and what was decided (Verdict).
//
// It imports the standard library only, starts no goroutine and reads no
// clock. Every zero value is safe: it never means healthy.
//
//	probe.go       Kind, ID, Probe and Set
//	target.go      Target, Instance and its Phase
//	rule.go        Rule: when to attempt, and the thresholds
//	handler.go     Handler, and the optional interfaces of handlers
//	result.go      Outcome, Verdict and Result
//	reason.go      the stable codes for why an attempt or an instance ended
//	fielderror.go  FieldError: which field of a configuration is wrong
//	share.go       Share: a percentage
//	names.go       the texts of enumerations
package probe
