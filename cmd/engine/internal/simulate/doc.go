// Package simulate tells what a rule makes of outcomes: which transitions it finds in given ones,
// and how good it is under noise, by the measures of Chen, Toueg and Aguilera, "On the Quality of
// Service of Failure Detectors" (2002). All that is decided is decided by verdict.Step.
//
//	play.go    given outcomes
//	chain.go   mean times under noise, exact
//	quality.go the measures, for a rule and others
//	estimate.go the noise that recorded outcomes have, and how certain that is
//	tune.go    the thresholds that keep false alarms and detection within bounds
package simulate
