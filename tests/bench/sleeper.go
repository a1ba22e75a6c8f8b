//go:build linux

package main

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"
)

// sleeper records how late the machine wakes a process that only sleeps: the lower bound
// of any lateness on that machine.
type sleeper struct {
	mu   sync.Mutex
	late []time.Duration // since the last read
}

// sleeper starts this program in role sleeper.
func (b *bench) sleeper(ctx context.Context) (*child, error) {
	var none time.Duration
	return b.startRole(ctx, &none, "sleeper")
}

// sleepers returns the line for a process that only sleeps.
func sleepers() line {
	return line{What: "meanwhile: p99 of lateness of a process that only sleeps", Unit: "ms"}
}

// sleeps adds a round: the lateness of a sleeper since the previous call.
func (c *child) sleeps(l *line) error {
	var late time.Duration
	if err := c.ask("late", &late); err != nil {
		return err
	}
	l.Rounds = append(l.Rounds, late.Seconds()*1e3)
	l.Measured = median(l.Rounds)
	return nil
}

// nap is the duration of each sleep.
const nap = 5 * time.Millisecond

// runSleeper is role sleeper. For each line of standard input it prints the 99th
// percentile of its lateness since the previous line.
func runSleeper(ctx context.Context, _ []string) error {
	ctx, stop := context.WithCancel(ctx)
	s := &sleeper{}
	var sleeping sync.WaitGroup
	sleeping.Go(func() { s.sleep(ctx) })
	defer sleeping.Wait()
	defer stop()
	return answer(os.Stdin, os.Stdout, s.read(), func(string) (any, error) { return s.read(), nil })
}

// sleep sleeps repeatedly until ctx is done.
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
