package health

import "math/bits"

// delays remembers the latest delay of each order of magnitude: what the longest one
// since a time was, for any time.
type delays [24]delay

type delay struct{ end, length int64 }

// add adds a delay of at least Tolerance. Delays are added in the order of their ends.
func (d *delays) add(end, length int64) {
	d[min(bits.Len64(uint64(length/Tolerance))-1, len(d)-1)] = delay{end, length}
}

func (d *delays) longest(since int64) int64 {
	for i := len(d) - 1; i >= 0; i-- {
		if d[i].end > since {
			return d[i].length
		}
	}
	return 0
}
