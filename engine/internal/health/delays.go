package health

import "math/bits"

const (
	// octaves is the number of powers of two of Tolerance that are distinguished: up to 23 hours.
	octaves = 23

	// octaveSteps is the number of steps per octave, so that the error of a delay is at most a quarter.
	octaveSteps = 4
)

// delays has the end of the latest delay of each length, from which the longest delay since any given time can be derived.
type delays [octaves * octaveSteps]int64

// add adds a delay of at least Tolerance.
func (d *delays) add(end, length int64) {
	n := uint64(length / (Tolerance / octaveSteps))
	octave := bits.Len64(n) - bits.Len64(octaveSteps)
	step := int(n>>octave) % octaveSteps
	d[min(octave*octaveSteps+step, len(d)-1)] = end
}

// longest returns the length of the longest delay that ended after since, rounded up.
func (d *delays) longest(since int64) int64 {
	for i := len(d) - 1; i >= 0; i-- {
		if d[i] > since {
			octave, step := i/octaveSteps, i%octaveSteps
			return int64(octaveSteps+step+1) << octave * (Tolerance / octaveSteps)
		}
	}
	return 0
}
