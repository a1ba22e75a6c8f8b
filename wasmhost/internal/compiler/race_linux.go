//go:build race

package compiler

// memoryOverhead is how many times as much memory a process takes under the race detector,
// which keeps a history of all memory.
const memoryOverhead = 8
