//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/sonde-probe/sonde/engine"
)

// side is one side of a comparison.
type side struct {
	name  string
	start func(context.Context) (*prober, error)
}

// prober is a running process of a side.
type prober struct {
	pid  int
	well func() (remark string, err error) // an error means that attempts had the wrong result
	end  func()
	made func() (uint64, error) // attempts so far; nil: each opens a connection
}

// price is the cost of an attempt.
type price struct {
	cpu      time.Duration // per attempt
	attempts uint64        // number of attempts
	remark   string        // of the side
}

// price runs a side alone and measures it.
func (b *bench) price(ctx context.Context, s side) (price, error) {
	p, err := s.start(ctx)
	if err != nil {
		return price{}, err
	}
	defer p.end()
	if err := pass(ctx, b.warmup); err != nil {
		return price{}, err
	}
	before, err := p.tally()
	if err != nil {
		return price{}, err
	}
	if err := pass(ctx, b.window); err != nil {
		return price{}, err
	}
	after, err := p.tally()
	if err != nil {
		return price{}, err
	}
	remark, err := p.well()
	if err != nil {
		return price{}, fmt.Errorf("%s: %w", s.name, err)
	}
	made := after.attempts - before.attempts
	others, err := b.plausible(made)
	if err != nil {
		return price{}, fmt.Errorf("%s: %w", s.name, err)
	}
	return price{(after.cpu - before.cpu) / time.Duration(made), made, remark + others}, nil
}

// plausible compares the kernel's number of attempts in a window with the number due.
func (b *bench) plausible(made uint64) (remark string, err error) {
	switch due := float64(b.rate) * b.window.Seconds(); {
	case float64(made) < due/4:
		return "", fmt.Errorf("%d attempts were made, %.0f were due", made, due)
	case float64(made) > due*1.1:
		return ", INVALID: other processes open connections too, run it in a network namespace", nil
	}
	return "", nil
}

// tally reads the number of attempts, and the CPU time of the process.
func (p *prober) tally() (sum price, err error) {
	made := opened // by all processes
	if p.made != nil {
		made = p.made
	}
	if sum.attempts, err = made(); err != nil {
		return sum, err
	}
	sum.cpu, err = cpu(p.pid)
	return sum, err
}

// pass waits for a duration.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// pair compares two sides, which take turns in starting first.
func (b *bench) pair(ctx context.Context, l line, ours, theirs side) ([]line, error) {
	var our, their, rates []float64
	var remark string
	for round := range b.rounds {
		first, second := ours, theirs
		if round%2 == 1 {
			first, second = theirs, ours
		}
		prices := map[string]price{}
		for _, s := range []side{first, second} {
			p, err := b.price(ctx, s)
			if err != nil {
				return nil, err
			}
			prices[s.name] = p
			remark = cmp.Or(p.remark, remark)
			rates = append(rates, float64(p.attempts)/b.window.Seconds())
		}
		our = append(our, prices[ours.name].cpu.Seconds()*1e6)
		their = append(their, prices[theirs.name].cpu.Seconds()*1e6)
		l.Rounds = append(l.Rounds, our[round]/their[round])
	}
	l.Unit, l.Measured = "×", median(l.Rounds)
	l.Note = fmt.Sprintf("%s %.1f µs, %s %.1f µs of CPU at %.0f attempts/s%s",
		ours.name, median(our), theirs.name, median(their), median(rates), remark)
	return []line{l}, nil
}

func (b *bench) tcpBesideHAProxy(ctx context.Context) ([]line, error) {
	l := line{What: "TCP attempt, half open, vs HAProxy", Goal: 1}
	return b.pair(ctx, l, b.sonde("half-open"), b.haproxy("tcp"))
}

func (b *bench) tcpBesideKubelet(ctx context.Context) ([]line, error) {
	l := line{What: "TCP attempt, full handshake, vs kubelet", Goal: 0.5}
	return b.pair(ctx, l, b.sonde("tcp"), b.kubeletSide("tcp"))
}

func (b *bench) httpBesideHAProxy(ctx context.Context) ([]line, error) {
	l := line{What: "HTTP attempt vs HAProxy", Goal: 1}
	return b.pair(ctx, l, b.sonde("http"), b.haproxy("http"))
}

func (b *bench) keptBesideHAProxy(ctx context.Context) ([]line, error) {
	l := line{What: "HTTP attempt over a kept connection vs HAProxy's check of the same target", Goal: 0.3}
	twice := *b
	twice.rate *= 2
	return twice.pair(ctx, l, twice.counted("http-kept"), twice.haproxy("http"))
}

// keptBesideLoop shows the share of the system in the cost of an attempt over a kept connection.
func (b *bench) keptBesideLoop(ctx context.Context) ([]line, error) {
	l := line{What: "HTTP attempt over a kept connection vs a loop in C that sends and receives", Goal: 1.5}
	loop, err := b.compile(ctx, "kept")
	if err != nil {
		return nil, err
	}
	twice := *b
	twice.rate *= 2
	return twice.pair(ctx, l, twice.counted("http-kept"), side{"C", func(ctx context.Context) (*prober, error) {
		cmd := exec.CommandContext(ctx, loop, fmt.Sprint(b.target), fmt.Sprint(twice.probes()), fmt.Sprint(b.period.Seconds()))
		var ready counts
		c, err := start(ctx, "kept", cmd, &ready)
		if err != nil {
			return nil, err
		}
		return &prober{pid: c.pid(), well: c.fine, end: c.end, made: c.made}, nil
	}})
}

func (b *bench) httpBesideKubelet(ctx context.Context) ([]line, error) {
	l := line{What: "HTTP attempt vs kubelet", Goal: 0.33}
	return b.pair(ctx, l, b.sonde("http"), b.kubeletSide("http"))
}

// sonde returns the side of the engine with a built-in handler whose attempts each open a connection.
func (b *bench) sonde(handler string) side {
	return side{"sonde", func(ctx context.Context) (*prober, error) {
		c, err := b.startHandler(ctx, handler)
		if err != nil {
			return nil, err
		}
		return &prober{pid: c.pid(), well: c.fine, end: c.end}, nil
	}}
}

// counted is sonde for a handler that keeps connections: the engine counts the attempts.
func (b *bench) counted(handler string, flags ...string) side {
	return side{"sonde", func(ctx context.Context) (*prober, error) {
		c, err := b.startHandler(ctx, handler, flags...)
		if err != nil {
			return nil, err
		}
		return &prober{pid: c.pid(), well: c.fine, end: c.end, made: c.made}, nil
	}}
}

func (b *bench) startHandler(ctx context.Context, handler string, flags ...string) (*child, error) {
	var ready counts
	return b.probe(ctx, &ready, append([]string{"-handler", handler, "-probes", fmt.Sprint(b.probes()), "-period", b.period.String()}, flags...)...)
}

// made returns the number of attempts of a process of role probe.
func (c *child) made() (uint64, error) {
	var now counts
	err := c.ask("count", &now)
	return now.Attempts, err
}

// probe starts this program in role probe.
func (b *bench) probe(ctx context.Context, ready *counts, flags ...string) (*child, error) {
	return b.startRole(ctx, ready, append([]string{"probe", "-port", fmt.Sprint(b.target), "-root", b.root}, flags...)...)
}

// probes returns the number of probes of a comparison.
func (b *bench) probes() int { return max(1, int(float64(b.rate)*b.period.Seconds())) }

// fine returns an error if more than 1 % of the attempts failed, otherwise their lateness as text.
func (c *child) fine() (remark string, err error) {
	var now counts
	if err := c.ask("count", &now); err != nil {
		return "", err
	}
	if now.Attempts == 0 || now.Failures > now.Attempts/100 {
		return "", fmt.Errorf("%d of %d attempts failed", now.Failures, now.Attempts)
	}
	if now.Lateness.Count() == 0 {
		return "", nil
	}
	p99, err := percentile(engine.Histogram{}, now.Lateness, 0.99)
	return fmt.Sprintf(", p99 of lateness %v", p99), err
}
