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

// changed is how many probes the second Apply of a round changes.
const changed = 1000

// applied is what a process that applies says of a round.
type applied struct {
	Same, Changed time.Duration // how long Apply took
	Noticed       int           // probes that should not have noticed and did
}

// applies measures Apply of a set in which nothing has changed, and of one in
// which a few probes have.
func (b *bench) applies(ctx context.Context) ([]line, error) {
	same := line{What: fmt.Sprintf("Apply of %d probes, nothing changed", b.million), Unit: "s", Goal: 1}
	some := line{What: fmt.Sprintf("Apply of %d probes, %d changed", b.million, min(changed, b.million)), Unit: "s", Goal: 1}
	noticed := line{What: "of these: attempts more or less, elsewhere", Zero: true}
	var round applied
	c, err := b.play(ctx, &round, "apply", "-probes", fmt.Sprint(b.million))
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

// playApply applies a set over and over: for each line of standard input once as
// it is, and once with some probes' handlers changed. The engine does not run, so
// that the next attempt of each other probe must stay exactly where it is.
func playApply(_ context.Context, args []string) error {
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
	e, err := l.engineOf(set)
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
	runtime.GC() // of what the round before has left
	start := time.Now()
	_, err := e.Apply(set)
	return time.Since(start), err
}

// nexts returns when each probe's next attempt is.
func nexts(e *engine.Engine, set probe.Set) map[probe.ID]time.Time {
	all := make(map[probe.ID]time.Time, len(set))
	for id := range set {
		st, _ := e.Status(id)
		all[id] = st.Next
	}
	return all
}
