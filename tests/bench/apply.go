//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// changed is the number of probes that the second Apply of a round changes.
const changed = 1000

// applied is the result of a round of role apply.
type applied struct {
	Same, Changed time.Duration // duration of Apply
	Noticed       int           // unchanged probes whose next attempt was moved
}

// applies measures Apply of an unchanged set, and of one with a few changed probes.
func (b *bench) applies(ctx context.Context) ([]line, error) {
	same := line{What: fmt.Sprintf("Apply of %d probes, nothing changed", b.million), Unit: "s", Goal: 1}
	some := line{What: fmt.Sprintf("Apply of %d probes, %d changed", b.million, min(changed, b.million)), Unit: "s", Goal: 1}
	noticed := line{What: "of these: attempts more or less, elsewhere", Zero: true}
	var round applied
	c, err := b.startRole(ctx, &round, "apply", "-probes", fmt.Sprint(b.million))
	if err != nil {
		return nil, err
	}
	defer c.end()
	for range b.rounds {
		if err := c.ask("again", &round); err != nil {
			return nil, err
		}
		same.Rounds = append(same.Rounds, round.Same.Seconds())
		some.Rounds = append(some.Rounds, round.Changed.Seconds())
		noticed.Measured += float64(round.Noticed)
	}
	same.Measured, some.Measured = median(same.Rounds), median(some.Rounds)
	return []line{same, some, noticed}, nil
}

// runApply is role apply. For each line of standard input, it applies a set once unchanged, and once with some changed probes. The
// engine does not run, so the next attempt of each unchanged probe must not move.
func runApply(_ context.Context, args []string) error {
	var l load
	f := flag.NewFlagSet("apply", flag.ContinueOnError)
	f.IntVar(&l.probes, "probes", 1_000_000, "how many probes")
	if err := f.Parse(args); err != nil {
		return err
	}
	l.handler, l.period = "tcp", 100*time.Second
	set, err := l.set()
	if err != nil {
		return err
	}
	e, err := engineOf(engine.Config{Concurrency: l.concurrency}, set)
	if err != nil {
		return err
	}
	return answer(os.Stdin, os.Stdout, applied{}, func(string) (any, error) { return again(e, set) })
}

func again(e *engine.Engine, set probe.Set) (round applied, err error) {
	before := nexts(e, set)
	if round.Same, err = timed(e, set); err != nil {
		return round, err
	}
	fresh := map[probe.ID]bool{}
	for id, p := range set {
		if len(fresh) == changed {
			break
		}
		p.Revision += "+"
		set[id], fresh[id] = p, true
	}
	if round.Changed, err = timed(e, set); err != nil {
		return round, err
	}
	for id, at := range nexts(e, set) {
		if !fresh[id] && !at.Equal(before[id]) {
			round.Noticed++
		}
	}
	return round, nil
}

func timed(e *engine.Engine, set probe.Set) (time.Duration, error) {
	runtime.GC() // collect the garbage of the previous round
	start := time.Now()
	_, err := e.Apply(set)
	return time.Since(start), err
}

// nexts returns the time of each probe's next attempt.
func nexts(e *engine.Engine, set probe.Set) map[probe.ID]time.Time {
	all := make(map[probe.ID]time.Time, len(set))
	for id := range set {
		st, _ := e.Status(id)
		all[id] = st.Next
	}
	return all
}
