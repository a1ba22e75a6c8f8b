//go:build race

package compiler

// memoryOverhead is the factor by which the race detector increases the memory of a process: it
// keeps a history of all memory.
const memoryOverhead = 8
