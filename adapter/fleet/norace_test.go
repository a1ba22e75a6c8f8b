//go:build !race

package fleet_test

// raceDetector says whether the tests run with the race detector.
const raceDetector = false
