package health_test

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
)

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
	begin  = 1000 * second
)

func TestALoopThatIsLateWasStalled(t *testing.T) {
	cases := []struct {
		name   string
		due    int64 // relative to begin; 0: never
		now    int64 // relative to begin
		lost   int64
		stalls uint64
	}{
		{"it is early", 100 * ms, 30 * ms, 0, 0},
		{"it is in time", 100 * ms, 100 * ms, 0, 0},
		{"it is a little late", 100 * ms, 110 * ms, 0, 0},
		{"it is late", 100 * ms, 150 * ms, 50 * ms, 1},
		{"it works without looking at the clock", ms / 1000, 90 * ms, 90*ms - ms/1000, 1},
		{"it sleeps without end", 0, 3600 * second, 0, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var m health.Monitor
			due := c.due
			if due != 0 {
				due += begin
			}
			m.Await(begin, due)
			m.Await(begin+c.now, 0)
			if got := m.State(begin + c.now); got.Lost != c.lost || got.Stalls != c.stalls {
				t.Errorf("lost %v in %d stalls, want %v in %d", time.Duration(got.Lost), got.Stalls, time.Duration(c.lost), c.stalls)
			}
		})
	}
}

func TestAStallIsCountedOnceWhoeverNoticesIt(t *testing.T) {
	var m health.Monitor
	m.Await(begin, begin+100*ms)
	m.Observe(begin + 2*second)
	m.Observe(begin + 2*second + ms)
	m.Await(begin+2*second+2*ms, begin+3*second)
	got := m.State(begin + 2*second + 2*ms)
	if want := 1900 * ms; got.Lost != want || got.Stalls != 1 {
		t.Errorf("lost %v in %d stalls, want %v in 1", time.Duration(got.Lost), got.Stalls, time.Duration(want))
	}
}

func TestTheLongestDelaySinceATimeIsKnown(t *testing.T) {
	var m health.Monitor
	for _, d := range []struct{ end, length int64 }{
		{1 * second, 900 * ms}, {2 * second, 50 * ms}, {3 * second, 5000 * ms}, {4 * second, 200 * ms}, {5 * second, 30 * ms},
		{6 * second, 5 * ms}, // within the tolerance
	} {
		m.Worked(begin+d.end, d.length)
	}
	for _, c := range []struct{ since, want int64 }{
		{0, 5000 * ms}, {2 * second, 5000 * ms}, {3 * second, 200 * ms}, {4 * second, 30 * ms}, {5 * second, 0},
	} {
		if got := m.Longest(begin + c.since); got < c.want || got > c.want+c.want/4 {
			t.Errorf("since %v: %v, want %v", time.Duration(c.since), time.Duration(got), time.Duration(c.want))
		}
	}
}

func TestTheLongestDelayIsRoundedUpByAQuarterAtMost(t *testing.T) {
	var m health.Monitor
	longest := int64(0)
	for i := range int64(1000) {
		length := (i*i*7919)%(70*60*second) + health.Tolerance + 1
		longest = max(longest, length)
		m.Worked(begin+i, length)
		if got := m.Longest(begin - 1); got < longest || got > longest+longest/4 {
			t.Fatalf("%v after a delay of %v", time.Duration(got), time.Duration(longest))
		}
	}
}

func TestTheScoreCountsSecondsThatWereNotClean(t *testing.T) {
	type stall struct{ end, length int64 } // end is relative to begin
	repeat := func(n int, every, length int64) (all []stall) {
		for i := range int64(n) {
			all = append(all, stall{(i + 1) * every, length})
		}
		return all
	}
	cases := []struct {
		name   string
		stalls []stall
		at     int64 // relative to begin
		want   int
	}{
		{"no stall", nil, second, 0},
		{"a hiccup", []stall{{100 * ms, 60 * ms}}, 100 * ms, 0},
		{"two hiccups in a second", []stall{{100 * ms, 60 * ms}, {300 * ms, 60 * ms}}, 300 * ms, 1},
		{"busy neighbours", repeat(300, 150*ms, 35*ms), 40 * second, 0},
		{"many busy neighbours", repeat(300, 100*ms, 48*ms), 20 * second, health.MaxScore},
		{"many hiccups in a second", repeat(8, 100*ms, 60*ms), 900 * ms, 1},
		{"two hiccups far apart", []stall{{100 * ms, 60 * ms}, {5 * second, 60 * ms}}, 5 * second, 0},
		{"a stall", []stall{{500 * ms, 300 * ms}}, 500 * ms, 1},
		{"a long stall", []stall{{6 * second, 5 * second}}, 6 * second, 5},
		{"a long stall, soon after", []stall{{6 * second, 5 * second}}, 7*second + 900*ms, 5},
		{"a long stall, some time after", []stall{{6 * second, 5 * second}}, 9 * second, 3},
		{"a long stall, long after", []stall{{6 * second, 5 * second}}, 60 * second, 0},
		{"an endless stall", []stall{{3600 * second, 3599 * second}}, 3600 * second, health.MaxScore},
		{"5 % of a processor", repeat(300, 100*ms, 95*ms), 30 * second, health.MaxScore},
		{"a stall in each third second", repeat(20, 3*second, 200*ms), 60 * second, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var m health.Monitor
			for _, s := range c.stalls {
				m.Await(begin+s.end-s.length, begin+s.end-s.length)
				m.Await(begin+s.end, 0)
			}
			if got := m.Score(begin + c.at); got != c.want {
				t.Errorf("the score is %d, want %d", got, c.want)
			}
		})
	}
}

func TestAttemptsThatCouldNotBeMadeRaiseTheScoreOnceASecond(t *testing.T) {
	var m health.Monitor
	for i := range int64(30) {
		m.Blame(begin + i*100*ms)
	}
	if got := m.Score(begin + 3*second); got != 3 {
		t.Errorf("after three seconds of them the score is %d, want 3", got)
	}
	if got := m.Score(begin + 20*second); got != 0 {
		t.Errorf("after many clean seconds the score is %d, want 0", got)
	}
}
