//go:build linux && race

package stall

// slowdown is by how much the race detector slows a prober down.
const slowdown = 10
