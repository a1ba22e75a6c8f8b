//go:build !race

package compiler

// memoryOverhead is how many times as much memory a process takes under the race detector:
// this one runs without it.
const memoryOverhead = 1
