//go:build linux

// Command bench measures the costs of probing and prints them with their goals: the
// CPU time of an attempt compared with HAProxy's and the kubelet's on the same machine
// in the same run, the memory of an idle probe, and the lateness of attempts with a
// million probes.
//
//	go run ./tests/bench                         all rows, medians of five rounds, in twenty minutes
//	go run ./tests/bench -rows tcp-haproxy,exec  some rows
//	go run ./tests/bench -json                   as JSON
//
// A row that cannot be measured on this machine shows the reason instead. HAProxy and gcc
// are used if they are in PATH; the kubelet's prober is built from tests/oracle. Plugins
// and the interpreter of scripts are used if make wasm and make build have built them.
//
// Each side of a comparison is a separate process, and so is the target, a minimal
// server. The sides alternate within a round, and the result is the median of the
// rounds' ratios, so that a machine that is slow for a minute is slow for both. CPU is
// the kernel's count for the process, in nanoseconds. Attempts are the kernel's count
// of connections opened (TcpActiveOpens) by all processes, or the engine's count for kept
// connections: if other processes open connections as well, run it in a network namespace:
//
//	unshare -rn sh -c 'ip link set lo up && go run ./tests/bench'
//
// With the name of a role as its first argument, the program runs as that process of a
// measurement. `bench probe -cpuprofile file` profiles attempts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// run runs the role named by the first argument, or else the rows.
func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		if part := roles()[args[0]]; part != nil {
			return part(ctx, args[1:])
		}
	}
	return compare(ctx, args)
}

// roles returns the roles of the processes that the program starts.
func roles() map[string]func(context.Context, []string) error {
	return map[string]func(context.Context, []string) error{
		"target":  runTarget,
		"secure":  runSecure,
		"probe":   runProbe,
		"apply":   runApply,
		"exec":    runExec,
		"sleeper": runSleeper,
		"plugin":  runPlugin,
	}
}

// options are the values of the flags.
type options struct {
	rows      []string
	json      bool
	rounds    int
	rate      int
	period    time.Duration // of the comparisons and of healthy probes
	timeout   time.Duration // of the probes that time out; their period is ten times as long
	window    time.Duration
	warmup    time.Duration
	million   int
	lap       time.Duration
	overload  int
	files     int
	commands  int
	instances int
	hanging   int
	once      bool
	kubelet   string
}

func parse(args []string) (options, error) {
	o := options{period: time.Second, timeout: time.Second}
	var rows string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&rows, "rows", "", "the `names` of the rows to measure, with commas; default all:\n"+strings.Join(rowNames(), ", "))
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.IntVar(&o.rounds, "rounds", 5, "number of rounds; figures are their medians")
	f.IntVar(&o.rate, "rate", 2000, "attempts per second of the comparisons: as many probes, with a period of 1s")
	f.DurationVar(&o.window, "window", 4*time.Second, "`duration` of each side of a comparison in a round")
	f.DurationVar(&o.warmup, "warmup", 2*time.Second, "`duration` of the warm-up of each side")
	f.IntVar(&o.million, "million", 1_000_000, "probes of the rows of a million")
	f.DurationVar(&o.lap, "lap", 100*time.Second, "the period of the probes of row million")
	f.IntVar(&o.overload, "overload", 100_000, "probes of row overload that time out")
	f.IntVar(&o.files, "targets", 10_000, "targets of rows config and plugin-engine; a square")
	f.IntVar(&o.commands, "commands", 300, "commands that each side of row exec runs in a round")
	f.IntVar(&o.instances, "instances", 200, "attempts under way of rows plugin-instances and scripts")
	f.IntVar(&o.hanging, "hanging", 2000, "targets of row plugin-outage that hang")
	f.BoolVar(&o.once, "once", false, "run each Go benchmark of row code for one iteration only")
	f.StringVar(&o.kubelet, "kubelet", "", "a `program` that runs the kubelet's prober; default: built from tests/oracle")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unknown role %q", f.Arg(0))
	}
	if o.rounds < 1 || o.rate < 1 || o.million < 1 || o.overload < 1 || o.files < 1 || o.commands < 1 || o.instances < 1 || o.hanging < 1 {
		return o, errors.New("counts must be 1 or more")
	}
	var err error
	o.rows, err = chosen(rows)
	return o, err
}

// chosen returns the rows named in a list, or all rows if it is empty.
func chosen(list string) ([]string, error) {
	known := rowNames()
	if list == "" {
		return known, nil
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("unknown row %q: use %s", name, strings.Join(known, ", "))
		}
	}
	return names, nil
}
