//go:build linux

package main

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"
)

// sleeper is what a process that only sleeps knows: how much later than asked the
// machine wakes it. Nothing on the same machine can keep time better than that.
type sleeper struct {
	mu   sync.Mutex
	late []time.Duration // since last read
}

// sleeper starts a process that only sleeps.
func (b *bench) sleeper(ctx context.Context) (*child, error) {
	var none time.Duration
	return b.play(ctx, &none, "sleeper")
}

// sleepers is the line of a process that only sleeps.
func sleepers() line {
	return line{What: "meanwhile: p99 of lateness of a process that only sleeps", Unit: "ms"}
}

// sleeps adds how late a sleeper was since it was last asked.
func (c *child) sleeps(l *line) error {
	var late time.Duration
	if err := c.ask("late", &late); err != nil {
		return err
	}
	l.Rounds = append(l.Rounds, late.Seconds()*1e3)
	l.Measured = median(l.Rounds)
	return nil
}

// nap is how long a sleeper sleeps.
const nap = 5 * time.Millisecond

// playSleeper sleeps, and says for each line of standard input what the 99th
// percentile of its lateness was since the one before.
func playSleeper(ctx context.Context, _ []string) error {
	ctx, stop := context.WithCancel(ctx)
	s := &sleeper{}
	var sleeping sync.WaitGroup
	sleeping.Go(func() { s.sleep(ctx) })
	defer sleeping.Wait()
	defer stop()
	return answer(os.Stdin, os.Stdout, s.read(), func(string) (any, error) { return s.read(), nil })
}

// sleep sleeps until ctx is done.
func (s *sleeper) sleep(ctx context.Context) {
	for ctx.Err() == nil {
		until := time.Now().Add(nap)
		time.Sleep(nap)
		late := time.Since(until)
		s.mu.Lock()
		s.late = append(s.late, late)
		s.mu.Unlock()
	}
}

func (s *sleeper) read() (p99 time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.late)
	if n := len(s.late); n > 0 {
		p99 = s.late[(n-1)*99/100]
	}
	s.late = s.late[:0]
	return p99
}
