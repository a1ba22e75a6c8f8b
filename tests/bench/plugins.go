//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// plugin runs this program in role plugin for one measurement.
func (b *bench) plugin(ctx context.Context, measure, guest string, flags ...string) (f figures, err error) {
	if _, err := guests()[guest].module(b.root); err != nil {
		return nil, err
	}
	c, err := b.startRole(ctx, &f, append([]string{
		"plugin", "-measure", measure, "-guest", guest, "-root", b.root, "-cache", filepath.Join(b.dir, "plugins"),
		"-window", b.window.String(), "-warmup", b.warmup.String(), "-period", b.period.String(),
	}, flags...)...)
	if err != nil {
		return nil, err
	}
	c.end()
	return f, nil
}

// pongTarget starts a server with the response that the guests expect. The caller must end it.
func (b *bench) pongTarget(ctx context.Context) (c *child, flag string, err error) {
	var at place
	c, err = b.startRole(ctx, &at, "target", "-answer", pong)
	return c, fmt.Sprint("-port=", at.Port), err
}

// add adds the figure of a round to a line.
func (l *line) add(v float64) {
	l.Rounds = append(l.Rounds, v)
	l.Measured = median(l.Rounds)
}

// pluginAttempts compares attempts of plugins with those of the built-in handler in one process. Single attempts in sequence are
// cold: in between, the processors sleep, and waking the threads of the Go runtime takes half of the time.
func (b *bench) pluginAttempts(ctx context.Context) ([]line, error) {
	server, at, err := b.pongTarget(ctx)
	if err != nil {
		return nil, err
	}
	defer server.end()
	var lines []line
	for _, g := range []struct {
		guest, what string
		goal        float64
	}{
		{"small", "small plugin", 8}, {"c", "plugin in C", 8}, {"as", "plugin in AssemblyScript", 8}, {"rust", "plugin in Rust", 8},
		{"go", "plugin in Go", 60},
	} {
		l := line{What: "warm attempt of a " + g.what + ", CPU beyond the built-in's on a goroutine", Unit: "µs", Goal: g.goal}
		var builtin, alone, beside []float64
		for range b.rounds {
			f, err := b.plugin(ctx, "attempts", g.guest, at)
			if err != nil {
				l.Missing = err.Error()
				break
			}
			l.add(f["plugin"] - f["builtin"])
			builtin = append(builtin, f["builtin"])
			alone, beside = append(alone, f["plugin alone"]-f["builtin alone"]), append(beside, f["builtin alone"])
		}
		if len(builtin) > 0 {
			l.Note = fmt.Sprintf("built-in %.1f µs, %d at a time; one after another %.1f µs beyond %.1f µs", median(builtin), warmWorkers, median(alone), median(beside))
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// scripts measures attempts of a script, and the memory of an attempt in progress.
func (b *bench) scripts(ctx context.Context) ([]line, error) {
	server, at, err := b.pongTarget(ctx)
	if err != nil {
		return nil, err
	}
	defer server.end()
	attempt := line{What: "attempt of a script, CPU", Unit: "µs", Goal: 300}
	var alone []float64
	_, memory := instanceLines("script", 0, 300)
	for range b.rounds {
		f, err := b.plugin(ctx, "attempts", "script", at)
		if err != nil {
			return nil, err
		}
		attempt.add(f["plugin"])
		alone = append(alone, f["plugin alone"])
		if f, err = b.plugin(ctx, "instances", "script", "-count", fmt.Sprint(b.instances)); err != nil {
			return nil, err
		}
		memory.add(f["KB"])
	}
	attempt.Note = fmt.Sprintf("%d at a time; one after another %.0f µs", warmWorkers, median(alone))
	return []line{attempt, memory}, nil
}

func instanceLines(what string, ms, kb float64) (start, memory line) {
	return line{What: "new instance of a " + what, Unit: "ms", Goal: ms},
		line{What: "memory of an attempt under way of a " + what, Unit: "KB", Goal: kb}
}

// pluginInstances measures the start of instances and the memory of attempts in progress.
func (b *bench) pluginInstances(ctx context.Context) ([]line, error) {
	var lines []line
	for _, g := range []struct {
		guest, what string
		ms, kb      float64
	}{{"small", "small plugin", 0.05, 32}, {"go", "plugin in Go", 0.3, 300}} {
		start, memory := instanceLines(g.what, g.ms, g.kb)
		for range b.rounds {
			f, err := b.plugin(ctx, "instances", g.guest, "-count", fmt.Sprint(b.instances))
			if err != nil {
				start.Missing, memory.Missing = err.Error(), err.Error()
				break
			}
			start.add(f["ms"])
			memory.add(f["KB"])
		}
		lines = append(lines, start, memory)
	}
	return lines, nil
}

// pluginEngine compares engines that make as many attempts as they can.
func (b *bench) pluginEngine(ctx context.Context) ([]line, error) {
	server, at, err := b.pongTarget(ctx)
	if err != nil {
		return nil, err
	}
	defer server.end()
	rate := line{What: fmt.Sprintf("%d targets of a plugin: rate relative to the built-in on goroutines", b.files), Unit: "%", Goal: 95, AtLeast: true}
	memory := line{What: "of these: memory beyond that of the built-in", Unit: "MB", Goal: 8}
	cost := map[string][]float64{}
	for round := range b.rounds {
		sides := map[string]figures{}
		for turn := range 2 {
			side := []string{"plugin", "builtin"}[(round+turn)%2]
			f, err := b.plugin(ctx, "engine", "small", at, "-count", fmt.Sprint(b.files), "-builtin="+fmt.Sprint(side == "builtin"))
			if err != nil {
				return nil, err
			}
			sides[side] = f
			cost[side] = append(cost[side], f["µs"])
		}
		rate.add(100 * sides["plugin"]["rate"] / sides["builtin"]["rate"])
		memory.add(sides["plugin"]["MB"] - sides["builtin"]["MB"])
	}
	rate.Note = fmt.Sprintf("plugin %.1f µs, built-in %.1f µs of CPU", median(cost["plugin"]), median(cost["builtin"]))
	return []line{rate, memory}, nil
}

// pluginOutage measures healthy targets of a plugin whose other targets hang.
func (b *bench) pluginOutage(ctx context.Context) ([]line, error) {
	server, at, err := b.pongTarget(ctx)
	if err != nil {
		return nil, err
	}
	defer server.end()
	hole, err := newBlackHole()
	if err != nil {
		return nil, err
	}
	defer hole.close()
	l := line{
		What: fmt.Sprintf("%d hanging and %d healthy targets of a plugin: attempts of the healthy that were made", b.hanging, healthy),
		Unit: "%", Goal: 99, AtLeast: true,
	}
	for range b.rounds {
		f, err := b.plugin(ctx, "outage", "small", at, "-black-port", fmt.Sprint(hole.port), "-count", fmt.Sprint(b.hanging))
		if err != nil {
			return nil, err
		}
		l.add(f["share"])
		l.Note = fmt.Sprintf("%.0f attempts/s at the hanging ones, %.0f instances", f["hanging"], f["instances"])
	}
	return []line{l}, nil
}

// pluginRunaways measures guests that do not end.
func (b *bench) pluginRunaways(ctx context.Context) ([]line, error) {
	var lines []line
	for _, guest := range []string{"loop", "recursion", "host calls", "sonde_configure"} {
		stopped := line{What: fmt.Sprintf("%d guests in an endless %s: stopped after their deadlines, worst", runaways, guest), Unit: "ms", Goal: 2}
		beside := line{What: "meanwhile: p99 of built-in probes' lateness", Unit: "ms"}
		if guest == "host calls" {
			stopped.What = fmt.Sprintf("%d guests with endless host calls: stopped after their deadlines, worst", runaways)
		}
		var alone, typical, stoppedShare []float64
		for range b.rounds {
			f, err := b.plugin(ctx, "runaway", guest, fmt.Sprint("-port=", b.target))
			if err != nil {
				return lines, err
			}
			stopped.add(f["worst"])
			beside.add(f["beside"])
			alone, typical = append(alone, f["alone"]), append(typical, f["median"])
			stoppedShare = append(stoppedShare, f["stopped"])
		}
		stopped.Note = fmt.Sprintf("median %.2f ms; %.0f %% ran until then", median(typical), median(stoppedShare))
		beside.Note = fmt.Sprintf("without them %.2f ms", median(alone))
		lines = append(lines, stopped, beside)
	}
	return lines, nil
}

// grpcShare is the factor by which row plugin-grpc-kubelet makes fewer attempts per second than the other rows: an attempt takes a
// millisecond of both processes.
const grpcShare = 10

// grpcBesideNative compares the plugin grpc with the kubelet's prober, which creates a ClientConn of grpc-go for each attempt. A
// server of grpc-go responds to both.
func (b *bench) grpcBesideNative(ctx context.Context) ([]line, error) {
	if err := b.findKubelet(ctx); err != nil {
		return nil, err
	}
	var at place
	server, err := start(ctx, "grpc server", exec.CommandContext(ctx, b.kubelet, "-serve"), &at)
	if err != nil {
		return nil, err
	}
	defer server.end()
	if _, err := guests()["grpc"].module(b.root); err != nil {
		return nil, err
	}
	aimed := *b
	aimed.target, aimed.rate = at.Port, max(1, b.rate/grpcShare)
	plugin := side{"plugin", aimed.sonde("grpc").start}
	native := side{"grpc-go", aimed.kubeletSide("grpc").start}
	return aimed.pair(ctx, line{What: "attempt of the plugin grpc vs grpc-go with a fresh ClientConn", Goal: 0.8}, plugin, native)
}
