package verdict

import (
	"math"
	"time"
)

// Level compares a number, such as the duration of attempts, with its own recent past, and detects that its level has risen. It
// needs neither a unit nor a distribution. A number is high if it is above the 99th percentile of the usual numbers and at least
// twice their median. As with the policy "evidence", each high number adds LevelWeight to a score, and each other number
// subtracts 1, down to 0. This is a CUSUM: as long as the numbers are independent, its error probability depends only on the
// share of high numbers. When the score reaches LevelScore the level has risen, and when it is back at 0 the level is as usual
// again.
//
// Numbers become usual once the score is 0 again. After a risen level, only a few of its numbers do: the level is detected again
// the next time, but no longer if it recurs regularly, such as a slow minute in each half hour. A level that lasts longer than
// newUsual becomes the usual one. The zero Level has no numbers. A Level takes about 1 KiB.
type Level struct {
	usual, recent counts // recent has the numbers since the score was 0
	score         int16
	risen         bool
	since         time.Time // time of the first number in recent
}

const (
	// LevelWeight and LevelScore are chosen so that a rise of all numbers is detected at the sixth one, and that there is one
	// false alarm in 5·10⁹ numbers if 2% of the usual ones are high. sonde simulate prints these figures.
	LevelWeight = 3
	LevelScore  = 18

	// minUsual is the minimum number of usual numbers for detection. At maxUsual the counts are halved, so that old numbers fade.
	minUsual = 256
	maxUsual = 16_384

	// wellKnown is the number of usual numbers that determine their 99th percentile reliably, even if high ones come in bursts.
	// With fewer, a rise requires twice the score.
	wellKnown = 1024

	// episode is the weight with which a risen level that has ended is added to the usual numbers, in thousandths of their count.
	// Four such levels exceed 1%.
	episode = 3

	// newUsual is the maximum time for which a level counts as risen.
	newUsual = 24 * time.Hour
)

// Rise describes a risen level. The numbers are medians, with an error of up to 9%.
type Rise struct {
	From, To float64
	Since    time.Time
}

// Add adds a number that was measured at the given time, and reports whether the level is risen now. It ignores NaN and infinite
// numbers.
func (l *Level) Add(x float64, at time.Time) (r Rise, isRisen bool) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return l.rise()
	}
	b := bucketOf(x)
	isHigh := l.usual.isHigh(b)
	if l.recent.total == 0 {
		if !isHigh {
			l.usual.add(b)
			return Rise{}, false
		}
		l.since = at
	}
	l.recent.add(b)
	enough := int16(LevelScore)
	if l.usual.total < wellKnown {
		enough *= 2
	}
	if isHigh {
		l.score = min(enough, l.score+LevelWeight)
	} else {
		l.score = max(0, l.score-1)
	}
	l.risen = l.risen || l.score >= enough
	switch {
	case l.risen && at.Sub(l.since) > newUsual:
		l.usual = l.recent
	case l.score > 0:
		return l.rise()
	case l.risen:
		top := l.recent.quantile(99)
		for range l.usual.total * episode / 1000 {
			l.usual.add(top)
		}
	default:
		l.usual.merge(&l.recent)
	}
	l.recent, l.score, l.risen = counts{}, 0, false
	return Rise{}, false
}

func (l *Level) rise() (Rise, bool) {
	if !l.risen {
		return Rise{}, false
	}
	return Rise{valueOf(l.usual.quantile(50)), valueOf(l.recent.quantile(50)), l.since}, true
}

// Numbers are counted in buckets: four for each doubling from 2⁻²⁴ to 2³⁹. The first bucket is for smaller, zero and negative
// numbers; the last one includes larger numbers. In seconds, the smallest number is 60 ns.
const (
	perDoubling = 4
	smallest    = -24
	buckets     = 64 * perDoubling
)

// counts has the number of values in each bucket.
type counts struct {
	of    [buckets]uint16
	total uint32
}

func bucketOf(x float64) int {
	if x <= 0 {
		return 0
	}
	return min(max(0, 1+int(math.Floor(perDoubling*(math.Log2(x)-smallest)))), buckets-1)
}

// valueOf returns the middle of a bucket.
func valueOf(bucket int) float64 {
	if bucket == 0 {
		return 0
	}
	return math.Exp2(smallest + (float64(bucket)-0.5)/perDoubling)
}

func (c *counts) add(bucket int) {
	c.of[bucket]++
	c.total++
	c.fade()
}

// merge adds other counts.
func (c *counts) merge(other *counts) {
	for i, n := range other.of {
		c.of[i] += n
	}
	c.total += other.total
	c.fade()
}

// fade halves the counts if there are too many. Remainders are carried to the next lower bucket, so that many buckets with one
// number each, as for the highest numbers, do not vanish.
func (c *counts) fade() {
	for c.total >= maxUsual {
		c.total = 0
		carry := uint16(0)
		for i := buckets - 1; i >= 0; i-- {
			n := c.of[i] + carry
			c.of[i], carry = n/2, n%2
			c.total += uint32(c.of[i])
		}
	}
}

// isHigh reports whether numbers in a bucket are high.
func (c *counts) isHigh(bucket int) bool {
	return c.total >= minUsual && bucket > c.quantile(99) && bucket >= c.quantile(50)+perDoubling
}

// quantile returns the bucket that contains the given percentile.
func (c *counts) quantile(percent uint32) int {
	want, sum := (c.total*percent+99)/100, uint32(0)
	for i, n := range c.of {
		if sum += uint32(n); sum >= want && sum > 0 {
			return i
		}
	}
	return 0
}
