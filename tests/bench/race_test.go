//go:build linux && race

package main

// raceDetector says whether the tests run with the race detector.
const raceDetector = true
