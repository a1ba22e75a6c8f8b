package verdict

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// numbers returns a generator of lognormal numbers around a median, some of which are ten times as high.
func numbers(r *rand.Rand, median float64) func() float64 {
	return func() float64 {
		x := median * math.Exp(0.3*r.NormFloat64())
		if r.IntN(200) == 0 {
			x *= 10
		}
		return x
	}
}

func TestALevelThatRisesIsFoundAndEnds(t *testing.T) {
	for name, c := range map[string]struct {
		usual, other float64
		found        int // number at which the rise must be detected, at the latest; 0 if it must not be detected
	}{
		"ten times":       {0.005, 0.05, 8},
		"three times":     {0.005, 0.015, 60},
		"a little more":   {0.005, 0.006, 0},
		"less":            {0.005, 0.0005, 0},
		"the same":        {0.005, 0.005, 0},
		"great numbers":   {1e9, 1e10, 8},
		"from 0":          {0, 10, 8},
		"stays at 0":      {0, 0, 0},
		"beyond the ends": {1e-30, 1e30, 8},
	} {
		t.Run(name, func(t *testing.T) {
			r, now := rand.New(rand.NewPCG(1, 2)), time.Unix(1000, 0)
			var l Level
			add := func(next func() float64, n int) (found int, last Rise) {
				for i := range n {
					now = now.Add(time.Second)
					if rise, ok := l.Add(next(), now); ok && found == 0 {
						found, last = i+1, rise
					}
				}
				return found, last
			}
			if found, _ := add(numbers(r, c.usual), 5000); found != 0 {
				t.Fatalf("the usual level has risen at %d", found)
			}
			began := now
			found, rise := add(numbers(r, c.other), 300)
			if (found != 0) != (c.found != 0) || found > c.found {
				t.Fatalf("it is found by number %d, want %d", found, c.found)
			}
			if c.found == 0 {
				return
			}
			if late := rise.Since.Sub(began); late < 0 || late > time.Duration(c.found)*time.Second {
				t.Errorf("it has risen %v after it did", late)
			}
			rise, ok := l.rise()
			near := func(x, want float64) bool { return math.Abs(math.Log2(max(x, 1e-9)/max(want, 1e-9))) < 0.4 }
			if !ok || name != "beyond the ends" && (!near(rise.From, c.usual) || !near(rise.To, c.other)) {
				t.Errorf("got %+v %v", rise, ok)
			}
			add(numbers(r, c.usual), 40)
			if _, ok := l.rise(); ok {
				t.Error("40 usual numbers do not end it")
			}
			add(numbers(r, c.other), 60)
			if _, ok := l.rise(); !ok {
				t.Error("it is not found again")
			}
			now = now.Add(newUsual)
			add(numbers(r, c.other), 200)
			if _, ok := l.rise(); ok {
				t.Error("a day later it is not the usual level")
			}
		})
	}
}

// Independent numbers cause no false alarm among a million, whatever their distribution.
func TestTheUsualLevelHasNotRisen(t *testing.T) {
	for name, next := range map[string]func(r *rand.Rand) float64{
		"constant":   func(r *rand.Rand) float64 { return 1 },
		"uniform":    func(r *rand.Rand) float64 { return r.Float64() },
		"lognormal":  func(r *rand.Rand) float64 { return math.Exp(r.NormFloat64()) },
		"Pareto":     func(r *rand.Rand) float64 { return 1 / r.Float64() },
		"two levels": func(r *rand.Rand) float64 { return float64(1 + 99*r.IntN(2)) },
		"often 0":    func(r *rand.Rand) float64 { return float64(max(0, r.IntN(100)-90)) },
	} {
		r, now := rand.New(rand.NewPCG(3, 4)), time.Unix(0, 0)
		var l Level
		for i := range 300_000 {
			now = now.Add(time.Second)
			if rise, ok := l.Add(next(r), now); ok {
				t.Errorf("%s: risen at %d: %+v", name, i, rise)
				break
			}
		}
	}
}

// Slow minutes that recur become part of the usual level after the first ones.
func TestBurstsBecomeUsual(t *testing.T) {
	r, now := rand.New(rand.NewPCG(5, 6)), time.Unix(0, 0)
	var l Level
	times, was := 0, false
	for i := range 100_000 {
		now = now.Add(time.Second)
		x := numbers(r, 0.005)()
		if i%1800 < 60 {
			x *= 5
		}
		_, ok := l.Add(x, now)
		if ok && !was {
			times++
		}
		was = ok
	}
	if times > 6 {
		t.Errorf("a slow minute in each half hour is a mistake %d times in 28 hours", times)
	}
}

// Laws: counts add up, a quantile is at its position, and no number makes a level exceed its bounds.
func FuzzLevel(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 255}, int64(60))
	f.Fuzz(func(t *testing.T, numbers []byte, step int64) {
		now := time.Unix(0, 0)
		var l Level
		for range 30 {
			for _, b := range numbers {
				now = now.Add(time.Duration(step%100_000) * time.Second)
				rise, ok := l.Add(math.Exp2(float64(b)-128)-math.Exp2(-120), now)
				if ok != l.risen || ok && (rise.To < 0 || rise.From < 0) {
					t.Fatalf("got %+v", rise)
				}
				for name, c := range map[string]*counts{"usual": &l.usual, "recent": &l.recent} {
					sum := uint32(0)
					for _, n := range c.of {
						sum += uint32(n)
					}
					if sum != c.total || sum >= maxUsual {
						t.Fatalf("%s: %d numbers in buckets, %d in all", name, sum, c.total)
					}
				}
				if l.score < 0 || l.score > 2*LevelScore || (l.score == 0) != (l.recent.total == 0) {
					t.Fatalf("score %d with %d recent numbers", l.score, l.recent.total)
				}
			}
		}
	})
}

func TestBucketsAreInOrderAndNearTheirNumbers(t *testing.T) {
	last := 0
	for x := 1e-7; x < 1e11; x *= 1.01 {
		b := bucketOf(x)
		if b < last {
			t.Fatalf("%v is in bucket %d, after %d", x, b, last)
		}
		if last = b; math.Abs(valueOf(b)/x-1) > 0.1 {
			t.Fatalf("%v is shown as %v", x, valueOf(b))
		}
	}
	all := []float64{math.Inf(-1), -1, 0, 1e-300, 1e-9, 1, 1e9, 1e300}
	if got := slices.IsSortedFunc(all, func(a, b float64) int { return bucketOf(a) - bucketOf(b) }); !got {
		t.Error("buckets are out of order")
	}
}

func BenchmarkLevel(b *testing.B) {
	r, now := rand.New(rand.NewPCG(7, 8)), time.Unix(0, 0)
	next := numbers(r, 0.005)
	var l Level
	for b.Loop() {
		l.Add(next(), now)
	}
}
