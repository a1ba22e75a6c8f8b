//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// row measures some lines of the table.
type row struct {
	name    string
	measure func(*bench, context.Context) ([]line, error)
}

// rows returns all rows, in the order of the table.
func rows() []row {
	return []row{
		{"tcp-haproxy", (*bench).tcpBesideHAProxy},
		{"tcp-kubelet", (*bench).tcpBesideKubelet},
		{"http-haproxy", (*bench).httpBesideHAProxy},
		{"http-kept-haproxy", (*bench).keptBesideHAProxy},
		{"http-kept-loop", (*bench).keptBesideLoop},
		{"http-kubelet", (*bench).httpBesideKubelet},
		{"options", (*bench).optionCosts},
		{"allocations", (*bench).allocations},
		{"memory", (*bench).idleMemory},
		{"million", (*bench).millionProbes},
		{"apply", (*bench).applies},
		{"code", (*bench).code},
		{"exec", (*bench).commands},
		{"overload", (*bench).overloaded},
		{"config", (*bench).configured},
		{"plugin-attempts", (*bench).pluginAttempts},
		{"plugin-grpc-kubelet", (*bench).grpcBesideNative},
		{"plugin-instances", (*bench).pluginInstances},
		{"plugin-engine", (*bench).pluginEngine},
		{"plugin-outage", (*bench).pluginOutage},
		{"plugin-runaways", (*bench).pluginRunaways},
		{"scripts", (*bench).scripts},
	}
}

func rowNames() []string {
	var names []string
	for _, r := range rows() {
		names = append(names, r.name)
	}
	return names
}

// bench is shared by the rows.
type bench struct {
	options
	self   string // this program
	root   string // the product's module
	dir    string // for files of this run
	target int    // port of the target
}

// line is one line of the table. A figure is the median of the rounds.
type line struct {
	Row      string    `json:"row"`
	What     string    `json:"what"`
	Unit     string    `json:"unit,omitempty"`    // "×", "ns", "s", "B" …
	Goal     float64   `json:"goal,omitempty"`    // maximum; 0: no goal
	AtLeast  bool      `json:"atLeast,omitempty"` // the goal is a minimum
	Zero     bool      `json:"zero,omitempty"`    // the goal is 0
	Measured float64   `json:"measured"`
	Rounds   []float64 `json:"rounds,omitempty"`
	Note     string    `json:"note,omitempty"`
	Missing  string    `json:"missing,omitempty"` // why there is no measurement
}

// compare measures rows and prints the table.
func compare(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	lines, err := measure(ctx, o)
	write := writeTable
	if o.json {
		write = writeJSON
	}
	return errors.Join(write(os.Stdout, lines), err)
}

// measure returns the lines of the chosen rows. It continues after a row that cannot be measured. If ctx is done, it returns the
// lines so far with ctx's error.
func measure(ctx context.Context, o options) (lines []line, err error) {
	b := &bench{options: o}
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if b.root, err = moduleRoot(ctx); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "sonde-bench-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.dir)
	var at place
	target, err := b.startRole(ctx, &at, "target")
	if err != nil {
		return nil, err
	}
	defer target.end()
	b.target = at.Port
	fmt.Fprintf(os.Stderr, "bench: %s\n", circumstances(ctx))
	for _, r := range rows() {
		if slices.Contains(o.rows, r.name) && ctx.Err() == nil {
			lines = append(lines, b.lines(ctx, r)...)
		}
	}
	return lines, ctx.Err()
}

// circumstances describes the machine and its load.
func circumstances(ctx context.Context) string {
	said := fmt.Sprintf("%s, %d processors", runtime.Version(), runtime.NumCPU())
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		one, _, _ := strings.Cut(string(load), " ")
		said += ", load " + one
	}
	if out, err := exec.CommandContext(ctx, "haproxy", "-v").Output(); err == nil {
		version, _, _ := strings.Cut(string(out), "\n")
		said += ", " + version
	}
	return said
}

// lines measures a row.
func (b *bench) lines(ctx context.Context, r row) []line {
	fmt.Fprintf(os.Stderr, "bench: measuring %s\n", r.name)
	lines, err := r.measure(b, ctx)
	if err != nil {
		lines = append(lines, line{What: r.name, Missing: err.Error()})
	}
	for i := range lines {
		lines[i].Row = r.name
	}
	return lines
}

// moduleRoot returns the directory of the module of the working directory.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if file == "" || file == os.DevNull {
		return "", fmt.Errorf("run it in Sonde's module")
	}
	return filepath.Dir(file), nil
}

// build builds a command of the module in dir, and returns the program.
func (b *bench) build(ctx context.Context, dir, pkg string) (string, error) {
	program := filepath.Join(b.dir, filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, pkg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w: %.500s", pkg, err, out)
	}
	return program, nil
}
