// Package dial opens the connections of the built-in handlers. It says how long
// each step took (probe.Timings) and which reason a failure has (probe.Reason).
//
// A connection that the target did not take, or took too late, is a Failure. What this
// machine could not do (no free port, no descriptor, a bad source address) is
// Unknown: it says nothing about the target.
package dial
