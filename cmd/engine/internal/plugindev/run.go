package plugindev

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

func runCommand() *cobra.Command {
	var t trial
	var attempts int
	var asJSON, quiet bool
	c := &cobra.Command{
		Use:   "run FILE [HOST:PORT]",
		Short: "Make one attempt with a plugin, and show its host calls",
		Long: "Run makes an attempt against a server, and shows the host functions that the plugin called, how long\n" +
			"each took, the fuel that the attempt used (see limits.fuel), and the result. A setting named port is\n" +
			"set to PORT unless --set gives it. FILE is a module, or a script: NAME.star.\n\n" +
			"The exit code is that of sonde probe: 0 success, 1 warning, 2 failure, 3 unknown, and 64 when\n" +
			"no attempt was made.",
		Example: "  sonde plugin run redis.wasm 127.0.0.1:6379 --set password=secret",
		Args:    cli.Args(1, 2, "FILE is required, and at most one HOST:PORT"),
		RunE: func(c *cobra.Command, args []string) error {
			reports, err := runAttempts(c, &t, args, attempts, quiet)
			if err != nil {
				return &cli.ExitError{Code: cli.ExitNoAttempt, Err: err}
			}
			return cli.Show(c.OutOrStdout(), reports, asJSON)
		},
	}
	cli.MarkAttempts(c)
	t.flags(c)
	c.Flags().IntVar(&attempts, "attempts", 1, "make a `number` of attempts of the same probe, one after another")
	c.Flags().BoolVar(&asJSON, "json", false, "write a list of results as JSON")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "do not show the host calls")
	return c
}

// runAttempts makes the attempts requested by the arguments.
func runAttempts(c *cobra.Command, t *trial, args []string, n int, quiet bool) ([]cli.Report, error) {
	ctx, end, err := t.begin(c, args)
	if err != nil {
		return nil, err
	}
	defer end()
	calls := &callLog{}
	if !quiet {
		t.host.Trace = calls.add
	}
	p, h, target, err := t.open(ctx)
	if err != nil {
		return nil, err
	}
	defer p.Close(ctx)
	defer h.Close()
	id := probe.ID{Target: target.Name, Kind: probe.Readiness, Name: cmp.Or(t.host.Name, p.Manifest().Name)}
	var reports []cli.Report
	for range n {
		calls.reset()
		before := p.Stats().Fuel
		result := attemptOnce(ctx, h, target, t.timeout)
		if err := calls.write(c.ErrOrStderr()); err != nil {
			return nil, err
		}
		if !quiet {
			fmt.Fprintf(c.ErrOrStderr(), "used %d units of fuel\n", p.Stats().Fuel-before)
		}
		reports = append(reports, cli.Report{ID: id, Label: id.Name, Result: result})
	}
	return reports, nil
}

// attemptOnce makes one attempt, without the retries of an engine. If an instance was still starting, it makes another attempt;
// the start takes limits.start at most.
func attemptOnce(ctx context.Context, h probe.Handler, target probe.Target, timeout time.Duration) probe.Result {
	for starting := false; ; {
		attempt, cancel := context.WithTimeout(ctx, timeout)
		began := time.Now()
		r := h.Probe(attempt, target)
		cancel()
		starting = r.Reason == wasmhost.ReasonStarting || starting && r.Reason == wasmhost.ReasonBusy
		if !starting || ctx.Err() != nil {
			r.Took, r.Tries = time.Since(began), 1
			return r
		}
	}
}

// callLog records the host calls of one attempt. It is safe for concurrent use.
type callLog struct {
	mu    sync.Mutex // guards the fields below
	began time.Time
	calls []tracedCall
	more  int // calls beyond maxCalls
}

// tracedCall is a call with the time when it returned.
type tracedCall struct {
	wasmhost.HostCall
	at time.Duration
}

// maxCalls is the maximum number of calls shown for an attempt.
const maxCalls = 1000

// reset starts the record of the next attempt.
func (l *callLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.calls, l.more = time.Now(), nil, 0
}

// add implements wasmhost.Config.Trace. It skips calls without a target, which are made while an instance starts.
func (l *callLog) add(c wasmhost.HostCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.Target == "":
	case len(l.calls) == maxCalls:
		l.more++
	default:
		l.calls = append(l.calls, tracedCall{c, time.Since(l.began)})
	}
}

// write writes a line for each call:
//
//	1.2ms  dial(65536, 3, 65539, 5, 0, 0, 0, 0) = 1000              took 85µs
//	1.3ms  read(1000, 66000, 512)               = timed out (73)    took 1s
func (l *callLog) write(w io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range l.calls {
		name := strings.TrimPrefix(c.Function, abi.HostModule+".")
		name = strings.TrimPrefix(name, abi.WASIModule+".")
		took := "took " + cli.Round(c.Took).String()
		if c.Detail != "" {
			took += ": " + probe.OneLine(c.Detail, 200)
		}
		fmt.Fprintf(t, "%v\t%s(%s)\t= %s\t%s\n", cli.Round(c.at), name, numbers(c.Args), resultText(c.HostCall), took)
	}
	if l.more > 0 {
		fmt.Fprintf(t, "… and %d more\n", l.more)
	}
	return t.Flush()
}

func numbers(args []uint64) string {
	texts := make([]string, len(args))
	for i, a := range args {
		texts[i] = fmt.Sprint(int32(uint32(a)))
	}
	return strings.Join(texts, ", ")
}

// resultText formats the result of a call, with the names of errors. WASI functions return error numbers, the others negative
// error numbers.
func resultText(c wasmhost.HostCall) string {
	n := c.Result
	if strings.HasPrefix(c.Function, abi.WASIModule+".") {
		n = -n
	}
	if n >= 0 || n < -1000 {
		return fmt.Sprint(c.Result)
	}
	return fmt.Sprintf("%v (%d)", abi.Errno(-n), -n)
}
