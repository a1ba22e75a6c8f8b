// Package lab tests plugins in two ways with the same words: as a function in this
// process, and as a module in the host; and it starts the servers that they probe.
package lab
