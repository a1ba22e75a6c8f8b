//go:build !race

package compiler

// memoryOverhead is the factor by which the race detector increases the memory of a process: it is
// not in use here.
const memoryOverhead = 1
