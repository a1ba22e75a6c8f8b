package process

import (
	"slices"
	"testing"
	"time"
)

// Each step is a line of a message, or "" if no message arrived until then.
func TestSilenceCountsOnlyWhenTheEngineHasListened(t *testing.T) {
	type step struct {
		at   time.Duration
		line string
	}
	ready, both := Config{Notify: true, ReadyTimeout: time.Minute}, Config{Notify: true, ReadyTimeout: time.Minute, Watchdog: 10 * time.Second}
	const s = time.Second
	for name, c := range map[string]struct {
		config Config
		steps  []step
		want   []notice
		until  time.Duration // the next deadline; 0 for none
	}{
		"ready":                     {ready, []step{{5 * s, "READY=1"}}, []notice{isReady}, 0},
		"ready again":               {ready, []step{{5 * s, "READY=1"}, {6 * s, "READY=1"}}, []notice{isReady}, 0},
		"not ready":                 {ready, []step{{60 * s, ""}, {60*s + overduePause, ""}}, []notice{isNotReady}, 0},
		"one look":                  {ready, []step{{60 * s, ""}}, nil, 60*s + overduePause},
		"ready at the second look":  {ready, []step{{60 * s, ""}, {60*s + 1, "READY=1"}}, []notice{isReady}, 0},
		"late engine":               {ready, []step{{70 * s, ""}}, nil, 130 * s},
		"late at the second look":   {ready, []step{{60 * s, ""}, {90 * s, ""}}, nil, 150 * s},
		"no watchdog yet":           {both, []step{{5 * s, "WATCHDOG=trigger"}}, nil, 60 * s},
		"watchdog since ready":      {both, []step{{5 * s, "READY=1"}}, []notice{isReady}, 15 * s},
		"watchdog of the start":     {Config{Watchdog: 10 * s}, nil, nil, 10 * s},
		"fed":                       {Config{Watchdog: 10 * s}, []step{{5 * s, "WATCHDOG=1"}}, nil, 15 * s},
		"fed at the second look":    {Config{Watchdog: 10 * s}, []step{{10 * s, ""}, {10*s + 1, "STATUS=x"}, {10*s + 2, "WATCHDOG=1"}}, nil, 20*s + 2},
		"others at the second look": {Config{Watchdog: 10 * s}, []step{{10 * s, ""}, {10*s + 1, "STATUS=x"}}, nil, 10*s + 1 + overduePause},
		"expired":                   {Config{Watchdog: 10 * s}, []step{{10 * s, ""}, {10*s + overduePause, ""}}, []notice{watchdogExpired}, 0},
		"flooded":                   {Config{Watchdog: 10 * s}, []step{{10 * s, ""}, {18*s - overduePause/2, "STATUS=x"}, {18 * s, "STATUS=x"}, {18*s + overduePause/2, ""}}, []notice{watchdogExpired}, 0},
		"trigger":                   {Config{Watchdog: 10 * s}, []step{{1 * s, "WATCHDOG=trigger"}, {2 * s, "WATCHDOG=trigger"}}, []notice{watchdogTriggered}, 0},
		"recovered":                 {Config{Watchdog: 10 * s}, []step{{1 * s, "WATCHDOG=trigger"}, {2 * s, "WATCHDOG=1"}}, []notice{watchdogTriggered, watchdogFed}, 12 * s},
		"no watchdog":               {Config{}, []step{{1 * s, "WATCHDOG=trigger"}, {2 * s, "WATCHDOG=1"}, {3 * s, "WATCHDOG_USEC=1"}}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			zero := time.Now()
			v := newVigil(c.config, zero)
			var got []notice
			for _, step := range c.steps {
				now := zero.Add(step.at)
				if step.line == "" {
					got = append(got, v.silent(now)...)
					continue
				}
				got = append(got, v.take(step.line, now)...)
				v.read(now)
			}
			var until time.Time
			if c.until > 0 {
				until = zero.Add(c.until)
			}
			if !slices.Equal(got, c.want) || !v.until.Equal(until) {
				t.Errorf("got %v until %v, want %v until %v", got, v.until.Sub(zero), c.want, c.until)
			}
		})
	}
}
