package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTheClockGoesOnWhileTheMachineIsSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspended time.Duration
		c := NewSuspended(func() time.Duration { return suspended })
		start := c.Start()
		is := func(want time.Duration) {
			t.Helper()
			if got := time.Duration(c.Now() - start); got != want {
				t.Errorf("the clock has gone on by %v, want %v", got, want)
			}
		}
		is(0)
		if c.Resumed() != 0 {
			t.Error("the machine was suspended before")
		}
		time.Sleep(time.Minute)
		is(time.Minute)
		suspended = tolerance - 1 // within the error of measurement
		is(time.Minute)
		suspended = time.Hour
		is(61 * time.Minute)
		time.Sleep(time.Minute)
		is(62 * time.Minute)
		if got := c.Suspended(); got != time.Hour {
			t.Errorf("the machine was suspended for %v", got)
		}
		if got := time.Duration(c.Resumed() - start); got != 61*time.Minute {
			t.Errorf("it went on after %v", got)
		}
	})
}

func TestTimesBeforeASuspensionStayWhatTheyWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspended time.Duration
		c := NewSuspended(func() time.Duration { return suspended })
		type moment struct {
			at   int64
			time time.Time
		}
		var all []moment
		for range maxEpochs + 5 {
			time.Sleep(time.Minute)
			all = append(all, moment{c.Now(), time.Now()})
			suspended += time.Hour
			time.Sleep(time.Nanosecond)
			if got := c.Now() - all[len(all)-1].at; got != int64(time.Hour+time.Nanosecond) {
				t.Errorf("a suspension of an hour takes %v", time.Duration(got))
			}
		}
		if got := len(*c.epochs.Load()); got != maxEpochs {
			t.Errorf("%d epochs are remembered", got)
		}
		for _, m := range all[len(all)-maxEpochs+2:] {
			if at := c.At(m.time); at != m.at {
				t.Errorf("At returns %v more than the clock has shown", time.Duration(at-m.at))
			}
			if got := c.Time(m.at); !got.Equal(m.time) || got.Sub(m.time) != 0 {
				t.Errorf("Time returns %v, and it was %v", got, m.time)
			}
		}
		if at := c.At(all[0].time); at < all[0].at {
			t.Errorf("the first time is %v too early", time.Duration(all[0].at-at))
		}
		if c.At(time.Time{}) != 0 || !c.Time(0).IsZero() {
			t.Error("0 is not no time")
		}
	})
}

// In a bubble, the wall clock cannot be moved relative to the monotonic clock. A meter with a different zero measures
// as if it had been moved.
func TestTheMeterMeasuresWhenTheWallClockWasMoved(t *testing.T) {
	m := newMeter()
	m.begin -= time.Hour // as if suspended for an hour
	if got := m.suspended(time.Now()); got != 0 {
		t.Errorf("without a look it was suspended for %v", got)
	}
	m.ahead.Store(int64(-time.Hour))
	if got := m.suspended(time.Now()); (got - time.Hour).Abs() > time.Second {
		t.Errorf("it was suspended for %v", got)
	}
	m.begin += time.Hour
	if got := m.suspended(time.Now()); (got - time.Hour).Abs() > time.Second {
		t.Errorf("it measures again without need: %v", got)
	}
}

func TestTheTimeOfSuspensionIsMeasured(t *testing.T) {
	if first, second := sinceBoot(), sinceBoot(); (second - first).Abs() > time.Second {
		t.Errorf("the machine was suspended for %v, then for %v", first, second)
	}
}

func BenchmarkNow(b *testing.B) {
	for c := New(); b.Loop(); {
		c.Now()
	}
}
