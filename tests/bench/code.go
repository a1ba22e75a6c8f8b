//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// goal is a Go benchmark with the maximum time of one operation.
type goal struct {
	what, pkg, benchmark string
	nanoseconds          float64
}

// goals returns the operations whose cost does not depend on the handler.
func goals() []goal {
	return []goal{
		{"verdict.Step", "./engine/verdict", "BenchmarkStep", 100},
		{"pop and reschedule, of 1,000,000", "./engine/internal/timeline", "BenchmarkPopSet", 500},
		{"Engine.Status", "./engine", "BenchmarkStatus", 100},
		{"Gauge.Passing (Watch)", "./engine", "BenchmarkGauge", 5},
	}
}

// code runs Go benchmarks.
func (b *bench) code(ctx context.Context) ([]line, error) {
	var lines []line
	for _, g := range goals() {
		runs, err := b.benchmark(ctx, g)
		if err != nil {
			return lines, err
		}
		time := line{What: g.what, Unit: "ns", Goal: g.nanoseconds}
		allocations := line{What: "allocations of " + g.what, Zero: true}
		for _, r := range runs {
			time.Rounds = append(time.Rounds, r.nanoseconds)
			allocations.Measured = max(allocations.Measured, r.allocations)
		}
		time.Measured = median(time.Rounds)
		lines = append(lines, time, allocations)
	}
	return lines, nil
}

// result is one run of a Go benchmark, per operation.
type result struct{ nanoseconds, allocations float64 }

func (b *bench) benchmark(ctx context.Context, g goal) ([]result, error) {
	args := []string{"test", "-run", "^$", "-bench", "^" + g.benchmark + "$", "-benchmem", "-count", fmt.Sprint(b.rounds)}
	if b.once {
		args = append(args, "-benchtime", "1x")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, g.pkg)...)
	cmd.Dir = b.root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test -bench %s: %w: %.500s", g.benchmark, err, out)
	}
	runs, err := parseBenchmark(string(out), g.benchmark)
	if err != nil {
		return nil, fmt.Errorf("go test -bench %s: %w", g.benchmark, err)
	}
	return runs, nil
}

// parseBenchmark parses the output of go test for a benchmark.
func parseBenchmark(text, name string) (runs []result, err error) {
	for at := range strings.Lines(text) {
		words := strings.Fields(at)
		if len(words) == 0 || words[0] != name && !strings.HasPrefix(words[0], name+"-") {
			continue
		}
		r := result{}
		if r.nanoseconds, err = before(words, "ns/op"); err != nil {
			return nil, err
		}
		if r.allocations, err = before(words, "allocs/op"); err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	if len(runs) == 0 {
		return nil, errors.New("no such benchmark")
	}
	return runs, nil
}

// before returns the number in front of a unit.
func before(words []string, unit string) (float64, error) {
	at := slices.Index(words, unit)
	if at < 1 {
		return 0, fmt.Errorf("%q has no %s", strings.Join(words, " "), unit)
	}
	return strconv.ParseFloat(words[at-1], 64)
}
