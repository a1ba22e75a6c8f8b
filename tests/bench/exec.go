//go:build linux

package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	"github.com/sonde-probe/sonde/probe"
)

//go:embed c/*.c
var sourcesC embed.FS

// program is the command of row exec. It does nothing.
const program = "/bin/true"

// ran is the cost of running commands one after another.
type ran struct{ CPU, Took time.Duration }

// commands compares the exec handler with a C program that runs the same command.
func (b *bench) commands(ctx context.Context) ([]line, error) {
	spawn, err := b.compile(ctx, "spawn")
	if err != nil {
		return nil, err
	}
	n := fmt.Sprint(b.options.commands)
	l := line{What: "exec attempt of " + program + " vs posix_spawn and wait in C, CPU", Unit: "×", Goal: 1.3}
	took := line{What: "of these: elapsed time", Unit: "×"}
	var our, their []float64
	for range b.rounds {
		ours, err := once(ctx, exec.CommandContext(ctx, b.self, "exec", "-n", n))
		if err != nil {
			return nil, err
		}
		theirs, err := once(ctx, exec.CommandContext(ctx, spawn, n, program))
		if err != nil {
			return nil, err
		}
		our, their = append(our, b.each(ours.CPU)), append(their, b.each(theirs.CPU))
		l.Rounds = append(l.Rounds, ours.CPU.Seconds()/theirs.CPU.Seconds())
		took.Rounds = append(took.Rounds, ours.Took.Seconds()/theirs.Took.Seconds())
	}
	l.Measured, took.Measured = median(l.Rounds), median(took.Rounds)
	l.Note = fmt.Sprintf("sonde %.0f µs, C %.0f µs, the command itself included", median(our), median(their))
	return []line{l, took}, nil
}

// each returns the time per command in microseconds.
func (b *bench) each(all time.Duration) float64 {
	return all.Seconds() * 1e6 / float64(b.options.commands)
}

// compile compiles a C program, and returns its path.
func (b *bench) compile(ctx context.Context, name string) (string, error) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		return "", errors.New("gcc is not on PATH")
	}
	text, err := sourcesC.ReadFile("c/" + name + ".c")
	if err != nil {
		return "", err
	}
	source, out := filepath.Join(b.dir, name+".c"), filepath.Join(b.dir, name)
	if err := os.WriteFile(source, text, 0o600); err != nil {
		return "", err
	}
	if said, err := exec.CommandContext(ctx, gcc, "-O2", "-o", out, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("gcc: %w: %.500s", err, said)
	}
	return out, nil
}

// once runs a command that prints a ran.
func once(ctx context.Context, cmd *exec.Cmd) (r ran, err error) {
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%s: %w", cmd.Path, err)
	}
	return r, json.Unmarshal(out, &r)
}

// runExec is role exec. It makes attempts of the exec handler one after another, and prints a ran.
func runExec(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("exec", flag.ContinueOnError)
	n := f.Int("n", 300, "how many attempts")
	if err := f.Parse(args); err != nil {
		return err
	}
	h, err := execprobe.New(execprobe.Config{Command: []string{program}})
	if err != nil {
		return err
	}
	attempts := func(n int) error {
		for range n {
			if got := h.Probe(ctx, probe.Target{Name: "shop/0"}); got.Outcome != probe.Success {
				return fmt.Errorf("%s: %v: %s", program, got.Outcome, got.Detail)
			}
		}
		return nil
	}
	if err := attempts(1); err != nil { // starts the guard
		return err
	}
	before, err := cpuWithGuard()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := attempts(*n); err != nil {
		return err
	}
	took := time.Since(start)
	after, err := cpuWithGuard()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(ran{after - before, took})
}

// cpuWithGuard returns ownCPU plus the CPU time of the children of this process, such as the guard of its commands, and of the
// children that they have reaped.
func cpuWithGuard() (time.Duration, error) {
	const tick = 10 * time.Millisecond // USER_HZ
	all, err := ownCPU()
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		pids, _ := os.ReadFile(list)
		for pid := range strings.FieldsSeq(string(pids)) {
			stat, _ := os.ReadFile("/proc/" + pid + "/stat")
			fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
			for i := 11; i < min(15, len(fields)); i++ { // utime, stime, cutime and cstime
				ticks, _ := strconv.Atoi(fields[i])
				all += time.Duration(ticks) * tick
			}
		}
	}
	return all, err
}
