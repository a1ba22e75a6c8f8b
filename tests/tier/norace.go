//go:build !race

package tier

// Race reports whether the tests run with the race detector.
const Race = false
