package restart

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestBackOffDoublesUpToItsMaximum(t *testing.T) {
	for name, c := range map[string]struct {
		b    BackOff
		want []time.Duration
	}{
		"defaults":            {BackOff{}, seconds(0, 0, 10, 20, 40, 80, 160, 300, 300)},
		"chosen":              {BackOff{Initial: time.Second, Max: 3 * time.Second}, seconds(0, 0, 1, 2, 3, 3)},
		"maximum is initial":  {BackOff{Initial: time.Second, Max: time.Second}, seconds(0, 0, 1, 1)},
		"maximum too small":   {BackOff{Initial: 9 * time.Second, Max: time.Second}, seconds(0, 0, 9, 9)},
		"below the default":   {BackOff{Max: 3 * time.Second}, seconds(0, 0, 3, 3)},
		"longer than default": {BackOff{Initial: 400 * time.Second}, seconds(0, 0, 400, 400)},
	} {
		t.Run(name, func(t *testing.T) {
			var got []time.Duration
			for ends := range c.want {
				got = append(got, c.b.withDefaults().wait(ends))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestBackOffResetsAfterALongRun(t *testing.T) {
	b := BackOff{}.withDefaults()
	for name, c := range map[string]struct {
		ends   int
		lasted time.Duration
		want   int
	}{
		"first":           {0, time.Second, 1},
		"short":           {3, time.Second, 4},
		"exactly as long": {3, 10 * time.Minute, 4}, // K147
		"longer":          {3, 10*time.Minute + 1, 1},
	} {
		if got := b.count(c.ends, c.lasted); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

func FuzzBackOffKeepsItsBounds(f *testing.F) {
	f.Add(int64(10*time.Second), int64(5*time.Minute), 5)
	f.Add(int64(1), int64(1<<62), 1<<30)
	f.Fuzz(func(t *testing.T, initial, most int64, ends int) {
		b := BackOff{Initial: time.Duration(initial), Max: time.Duration(most)}
		if (Unit{BackOff: b}).Check() != nil || ends < 0 {
			t.Skip("Check refuses it")
		}
		b = b.withDefaults()
		now, next := b.wait(ends), b.wait(ends+1)
		if now < 0 || now > b.Max || next < now || ends >= 2 && now < b.Initial {
			t.Errorf("%+v waits %v after %d ends, then %v", b, now, ends, next)
		}
	})
}

func TestSmallerLimitOfTheBudgetCounts(t *testing.T) {
	for name, c := range map[string]struct {
		b     Budget
		units int
		want  int
	}{
		"none":                 {Budget{}, 100, 0},
		"maximum":              {Budget{Max: 3}, 100, 3},
		"share":                {Budget{Share: 0.1}, 100, 10},
		"share, rounded down":  {Budget{Share: 0.1}, 39, 3},
		"share, at least one":  {Budget{Share: 0.1}, 2, 1},
		"share of nothing":     {Budget{Share: 0.1}, 0, 1},
		"maximum below share":  {Budget{Max: 3, Share: 0.1}, 100, 3},
		"share below maximum":  {Budget{Max: 30, Share: 0.1}, 100, 10},
		"everything, as share": {Budget{Share: 1}, 7, 7},
		"at least a minimum":   {Budget{Share: 0.25, Min: 3}, 2, 3},
		"share over minimum":   {Budget{Share: 0.25, Min: 3}, 20, 5},
		"maximum over minimum": {Budget{Max: 2, Share: 0.25, Min: 3}, 20, 2},
	} {
		if got := c.b.limit(c.units); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

func TestBudgetIsASlidingWindow(t *testing.T) {
	b := Budget{Max: 2, Per: 60 * time.Second}
	var spent account
	for _, step := range []struct {
		at, again int // seconds; again is 0 when the end is allowed
	}{{0, 0}, {10, 0}, {20, 60}, {59, 60}, {60, 0}, {61, 70}, {70, 0}, {71, 120}, {500, 0}} {
		next, again, ok := spent.take(b, fmt.Sprint("at ", step.at), 1, second(step.at))
		if ok != (step.again == 0) || !ok && !again.Equal(second(step.again)) {
			t.Errorf("at %d: %v, again at %v", step.at, ok, again)
		}
		spent = next
	}
}

func TestSmallerBudgetCountsEarlierRestarts(t *testing.T) {
	b := Budget{Share: 0.5, Per: 60 * time.Second}
	var spent account
	for at := range 4 {
		spent, _, _ = spent.take(b, fmt.Sprint("at ", at), 8, second(at))
	}
	if _, again, ok := spent.take(b, "another", 2, second(10)); ok || !again.Equal(second(3+60)) {
		t.Errorf("got %v, again at %v", ok, again)
	}
}

func FuzzBudgetIsNeverExceeded(f *testing.F) {
	f.Add(2, 10, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0})
	f.Fuzz(func(t *testing.T, most, per int, steps []byte) {
		b := Budget{Max: most, Per: time.Duration(per) * time.Second}
		if most < 1 || per < 1 || per > 1e6 || len(steps) > 1000 {
			t.Skip("not a budget")
		}
		var spent account
		var ends []time.Time
		now := second(0)
		for n, step := range steps {
			now = now.Add(time.Duration(step) * time.Second)
			var again time.Time
			var ok bool
			spent, again, ok = spent.take(b, fmt.Sprint(n), 1, now)
			if ok {
				ends = append(ends, now)
			} else if !again.After(now) {
				t.Fatalf("refused at %v until at %v", now, again)
			}
			if first := len(ends) - most - 1; first >= 0 && ends[len(ends)-1].Sub(ends[first]) < b.Per {
				t.Fatalf("%d ends within %v: %v", most+1, b.Per, ends[first:])
			}
		}
	})
}

func seconds(of ...int) []time.Duration {
	var all []time.Duration
	for _, n := range of {
		all = append(all, time.Duration(n)*time.Second)
	}
	return all
}

func second(n int) time.Time { return time.Unix(int64(n), 0) }

// The last line says why a process has exited, and a transition keeps it.
func TestADetailKeepsTheLastLinesOfTheOutput(t *testing.T) {
	var log strings.Builder
	for i := range 200 {
		fmt.Fprintf(&log, "GET /%d 200\n", i)
	}
	log.WriteString("panic: out of cheese\n\n")
	end := termination{started: true, exit: Exit{Code: 2, Output: log.String()}}
	detail := end.detail(", restarts in 10s")
	if !strings.HasPrefix(detail, "exit status 2, restarts in 10s: … GET /") || !strings.HasSuffix(detail, "GET /199 200\npanic: out of cheese") {
		t.Errorf("detail = %q", detail)
	}
	if len(detail) > 400 {
		t.Errorf("detail has %d bytes, a transition keeps 400", len(detail))
	}
}

func TestTheStartOfAnInstanceIsOnTheMonotonicClock(t *testing.T) {
	now := time.Now()
	for _, since := range []time.Duration{0, time.Second, time.Hour, -time.Hour} {
		wall := now.Round(0).Add(-since)
		if got := ago(wall, now); !strings.Contains(got.String(), " m=") || now.Sub(got) != max(0, since) || since >= 0 && !got.Equal(wall) {
			t.Errorf("%v before %v: %v", since, now, got)
		}
	}
}
