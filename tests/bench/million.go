//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine"
)

// allocations measures the allocations of an attempt in an embedder's process: by the
// handler and by the engine.
func (b *bench) allocations(ctx context.Context) ([]line, error) {
	var lines []line
	for _, handler := range []string{"tcp", "half-open", "http"} {
		number := line{What: "allocations of an attempt, " + handler, Goal: 4}
		size := line{What: "bytes allocated by an attempt, " + handler, Unit: "B", Goal: 1024}
		for range b.rounds {
			n, bytes, err := b.allocated(ctx, handler)
			if err != nil {
				return lines, err
			}
			number.Rounds, size.Rounds = append(number.Rounds, n), append(size.Rounds, bytes)
		}
		number.Measured, size.Measured = median(number.Rounds), median(size.Rounds)
		lines = append(lines, number, size)
	}
	return lines, nil
}

func (b *bench) allocated(ctx context.Context, handler string) (number, bytes float64, err error) {
	var ready counts
	c, err := b.probe(ctx, &ready, "-handler", handler, "-probes", fmt.Sprint(b.probes()), "-period", b.period.String())
	if err != nil {
		return 0, 0, err
	}
	defer c.end()
	before, err := c.after(ctx, b.warmup)
	if err != nil {
		return 0, 0, err
	}
	after, err := c.after(ctx, b.window)
	if err != nil {
		return 0, 0, err
	}
	made := float64(after.Attempts - before.Attempts)
	if made == 0 {
		return 0, 0, fmt.Errorf("%s made no attempt", handler)
	}
	return float64(after.Allocations-before.Allocations) / made, float64(after.Allocated-before.Allocated) / made, nil
}

// after returns the counts of a process of role probe after some time.
func (c *child) after(ctx context.Context, d time.Duration) (now counts, err error) {
	if err := pass(ctx, d); err != nil {
		return now, err
	}
	return now, c.ask("count", &now)
}

// idleMemory measures the resident memory of an idle probe, compared with an engine that has one probe. Each probe has a target
// with its own address; all share one rule and one handler.
func (b *bench) idleMemory(ctx context.Context) ([]line, error) {
	l := line{What: fmt.Sprintf("memory of an idle probe, of %d", b.million), Unit: "B", Goal: 512}
	for range b.rounds {
		empty, err := b.idle(ctx, "-probes", "1")
		if err != nil {
			return nil, err
		}
		full, err := b.idle(ctx, "-probes", fmt.Sprint(b.million))
		if err != nil {
			return nil, err
		}
		l.Rounds = append(l.Rounds, (full-empty)/float64(b.million))
	}
	l.Measured, l.Note = median(l.Rounds), "resident, before the first attempt"
	return []line{l}, nil
}

// idle returns the resident memory of an engine with probes that does not run.
func (b *bench) idle(ctx context.Context, flags ...string) (bytes float64, err error) {
	var ready counts
	c, err := b.probe(ctx, &ready, append(flags, "-idle")...)
	if err != nil {
		return 0, err
	}
	defer c.end()
	return resident(c.pid())
}

// millionProbes measures the lateness of attempts. It starts measuring after the first
// attempt of each probe; the rounds are intervals of one run.
func (b *bench) millionProbes(ctx context.Context) ([]line, error) {
	var ready counts
	c, err := b.probe(ctx, &ready, "-probes", fmt.Sprint(b.million), "-period", b.lap.String())
	if err != nil {
		return nil, err
	}
	defer c.end()
	if err := pass(ctx, b.lap+b.warmup); err != nil {
		return nil, err
	}
	lines, err := b.keepsTime(ctx, c)
	if err != nil {
		return nil, err
	}
	kept, err := c.settled(b.million)
	kept.What = "of these: memory of a running probe"
	return append(lines, kept), err
}

// keepsTime measures intervals of a run, together with a process that only sleeps.
func (b *bench) keepsTime(ctx context.Context, c *child) ([]line, error) {
	sleeper, err := b.sleeper(ctx)
	if err != nil {
		return nil, err
	}
	defer sleeper.end()
	late := line{What: fmt.Sprintf("%d probes, period %v: p99 of lateness", b.million, b.lap), Unit: "ms", Goal: 10}
	skipped := line{What: "of these: attempts skipped", Zero: true}
	sleeps := sleepers()
	var rates, busy, awake []float64
	failed := uint64(0)
	for range b.rounds {
		s, err := b.stretch(ctx, c)
		if err == nil {
			err = sleeper.sleeps(&sleeps)
		}
		if err != nil {
			return nil, err
		}
		late.Rounds = append(late.Rounds, s.p99.Seconds()*1e3)
		skipped.Rounds = append(skipped.Rounds, float64(s.skipped))
		failed += s.failed
		rates, busy, awake = append(rates, s.rate), append(busy, s.busy), append(awake, s.awake)
	}
	late.Measured, skipped.Measured = median(late.Rounds), median(skipped.Rounds)
	late.Note = fmt.Sprintf("an upper bound; tcp, %.0f attempts/s, %d failed in all, %.2f processors busy, the scheduler busy for %.0f%%",
		median(rates), failed, median(busy), 100*median(awake))
	return []line{late, skipped, sleeps}, nil
}

// stretch is the result of an interval.
type stretch struct {
	p99     time.Duration // of the lateness of attempts: an upper bound
	skipped uint64
	failed  uint64
	rate    float64 // attempts per second
	busy    float64 // processors
	awake   float64 // the share of the time during which the engine's loop was busy
}

func (b *bench) stretch(ctx context.Context, c *child) (s stretch, err error) {
	before, err := c.after(ctx, 0)
	if err != nil {
		return s, err
	}
	idle, err := cpu(c.pid())
	if err != nil {
		return s, err
	}
	after, err := c.after(ctx, b.window)
	if err != nil {
		return s, err
	}
	used, err := cpu(c.pid())
	if err != nil {
		return s, err
	}
	made := after.Attempts - before.Attempts
	if s.failed = after.Failures - before.Failures; s.failed > made/2 {
		return s, fmt.Errorf("%d of %d attempts failed", s.failed, made)
	}
	s.skipped = after.Skipped - before.Skipped
	s.rate = float64(made) / b.window.Seconds()
	s.busy = (used - idle).Seconds() / b.window.Seconds()
	s.awake = (after.Busy - before.Busy).Seconds() / b.window.Seconds()
	s.p99, err = percentile(before.Lateness, after.Lateness, 0.99)
	return s, err
}

// percentile returns the upper bound of a share of the durations that were counted between two histograms.
func percentile(before, after engine.Histogram, share float64) (time.Duration, error) {
	n := after.Count() - before.Count()
	if n == 0 {
		return 0, errors.New("no attempt was due")
	}
	seen := uint64(0)
	for i, bound := range after.Bounds {
		seen += after.Counts[i]
		if len(before.Counts) > i {
			seen -= before.Counts[i]
		}
		if float64(seen) >= share*float64(n) {
			return bound, nil
		}
	}
	return 2 * after.Bounds[len(after.Bounds)-1], nil
}

// settled measures the resident memory per probe of n probes, after their first attempts.
func (c *child) settled(n int) (line, error) {
	var last counts
	if err := c.ask("settle", &last); err != nil {
		return line{}, err
	}
	bytes, err := resident(c.pid())
	return line{Unit: "B", Measured: bytes / float64(n), Note: "resident, the process included"}, err
}
