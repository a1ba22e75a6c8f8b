package health

import "math/bits"

const (
	// octaves is how many powers of two of Tolerance are told apart: up to 23 hours.
	octaves = 23

	// octaveSteps is into how many parts each is divided, so that a delay is known to a
	// quarter.
	octaveSteps = 4
)

// delays remembers when the latest delay of each length ended: so it knows what the
// longest one since a time was, for any time.
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
