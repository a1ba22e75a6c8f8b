package verdict

import (
	"math"
	"time"
)

// Level watches the level of a number, such as the duration of attempts, against its own recent past, and finds that it has risen. It
// needs no unit and no distribution. A number is high if it is above 99 % of the usual ones and at least twice their median. Each high
// number adds LevelWeight to a score and each other takes 1 off it, down to 0, as the policy "evidence" does: a CUSUM of which the
// probability of mistakes depends only on the share of high numbers, as long as they are independent. At LevelScore the level has risen,
// and from there back at 0 it is as usual again.
//
// Numbers count as usual once the score is 0 again. Of a risen level that ends, few do: it is found again the next time, and no more if
// it keeps coming back, as a slow minute in each half hour. One that stays for newUsual is the usual one. The zero Level has seen none. It takes about 1 KiB.
type Level struct {
	usual, recent counts // recent are those since the score was 0
	score         int16
	risen         bool
	since         time.Time // when the first of recent came
}

const (
	// LevelWeight and LevelScore are chosen so that a level that has risen for all numbers is found by the sixth, and that there is one
	// mistake in 5·10⁹ numbers, if 2 % of the usual ones are high: sonde simulate prints that.
	LevelWeight = 3
	LevelScore  = 18

	// minUsual is how many usual numbers are needed first, and maxUsual after how many their counts are halved, so that old ones fade.
	minUsual = 256
	maxUsual = 16_384

	// wellKnown is how many usual numbers show their 99th percentile, also if high ones come in bursts. With fewer, a level has risen at
	// twice the score.
	wellKnown = 1024

	// episode is how much of a risen level that has ended is usual, in thousandths of what is: four times that are more than 1 %.
	episode = 3

	// newUsual is how long a level is risen at the most.
	newUsual = 24 * time.Hour
)

// Rise is a level that has risen. The numbers are medians, with an error of up to 9 %.
type Rise struct {
	From, To float64
	Since    time.Time
}

// Add adds a number that was read at a time, and reports whether the level is risen now. A number that is not finite is ignored.
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

// The buckets of counts: four for each doubling from 2⁻²⁴ to 2³⁹, one below for what is smaller, 0 and negative, and what is larger in
// the last. Of seconds, the smallest is 60 ns.
const (
	perDoubling = 4
	smallest    = -24
	buckets     = 64 * perDoubling
)

// counts are how many numbers were in each bucket.
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

// fade halves the counts if there are too many. What is left over of a bucket is added to the next lower one: many buckets with one
// number each, as those of the highest numbers, do not vanish.
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

// isHigh reports whether a bucket is that of a high number.
func (c *counts) isHigh(bucket int) bool {
	return c.total >= minUsual && bucket > c.quantile(99) && bucket >= c.quantile(50)+perDoubling
}

// quantile returns the bucket in which a percentage of the numbers ends.
func (c *counts) quantile(percent uint32) int {
	want, sum := (c.total*percent+99)/100, uint32(0)
	for i, n := range c.of {
		if sum += uint32(n); sum >= want && sum > 0 {
			return i
		}
	}
	return 0
}
