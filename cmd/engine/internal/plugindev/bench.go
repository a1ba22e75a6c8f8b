package plugindev

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/stats"
)

// bench holds the arguments and flags of sonde plugin bench.
type bench struct {
	trial
	duration  time.Duration
	instances int
}

func benchCommand() *cobra.Command {
	var b bench
	c := &cobra.Command{
		Use:     "bench FILE [HOST:PORT]",
		Short:   "Measure the speed and the memory of a plugin",
		Example: "  sonde plugin bench redis.wasm 127.0.0.1:6379 --instances 16",
		Args:    cli.Args(1, 2, "FILE is required, and at most one HOST:PORT"),
		RunE:    func(c *cobra.Command, args []string) error { return runBench(c, &b, args) },
	}
	b.flags(c)
	c.Flags().DurationVar(&b.duration, "for", 3*time.Second, "`time` to measure")
	c.Flags().IntVar(&b.instances, "instances", runtime.GOMAXPROCS(0), "`number` of concurrent attempts")
	return c
}

func runBench(c *cobra.Command, b *bench, args []string) error {
	ctx, end, err := b.begin(c, args)
	if err != nil {
		return err
	}
	defer end()
	if b.instances < 1 || b.instances > 1<<16 || b.duration < time.Millisecond {
		return cli.UsageError("--instances must be from 1 to %d, and --for 1ms or more", 1<<16)
	}
	b.host.Limits.Instances = b.instances
	p, h, target, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer p.Close(ctx)
	defer h.Close()
	m := measure(ctx, h, target, b)
	m.stats = p.Stats()
	return m.write(c.OutOrStdout())
}

// measured holds the results of a measurement.
type measured struct {
	took     []time.Duration
	outcomes [4]int       // by probe.Outcome
	example  probe.Result // of an attempt that was not a success
	lasted   time.Duration
	stats    stats.Plugin
}

// measure makes attempts until the time is over, with one goroutine and one handler for each instance.
func measure(ctx context.Context, h *wasmhost.Handler, target probe.Target, b *bench) measured {
	ctx, cancel := context.WithTimeout(ctx, b.duration)
	defer cancel()
	each := make([]measured, b.instances)
	var working sync.WaitGroup
	began := time.Now()
	for i := range each {
		working.Go(func() {
			own := h.ForProbe()
			if held, ok := own.(io.Closer); ok {
				defer held.Close()
			}
			for ctx.Err() == nil {
				each[i].add(attemptOnce(context.WithoutCancel(ctx), own, target, b.timeout))
			}
		})
	}
	working.Wait()
	m := measured{lasted: time.Since(began)}
	for _, one := range each {
		m.took = append(m.took, one.took...)
		for outcome, n := range one.outcomes {
			m.outcomes[outcome] += n
		}
		if one.example.Outcome != probe.Success && one.example.Tries > 0 {
			m.example = one.example
		}
	}
	return m
}

func (m *measured) add(r probe.Result) {
	m.took = append(m.took, r.Took)
	m.outcomes[r.Outcome]++
	if r.Outcome != probe.Success {
		m.example = r
	}
}

func (m *measured) write(w io.Writer) error {
	slices.Sort(m.took)
	source := "compiled"
	if m.stats.CacheHit {
		source = "from the cache"
	}
	fmt.Fprintf(w, "%-10s %.0f/s, %d in %v\n", "attempts", float64(len(m.took))/m.lasted.Seconds(), len(m.took), cli.Round(m.lasted))
	fmt.Fprintf(w, "%-10s %v median, %v 99th percentile, %v maximum\n", "took", cli.Round(m.at(0.5)), cli.Round(m.at(0.99)), cli.Round(m.at(1)))
	fmt.Fprintf(w, "%-10s %d success, %d warning, %d failure, %d unknown\n", "outcomes",
		m.outcomes[probe.Success], m.outcomes[probe.Warning], m.outcomes[probe.Failure], m.outcomes[probe.Unknown])
	if m.example.Reason != "" || m.example.Detail != "" {
		fmt.Fprintf(w, "%-10s %s\n", "", probe.OneLine(string(m.example.Reason)+": "+m.example.Detail, 200))
	}
	fmt.Fprintf(w, "%-10s %d units per attempt\n", "fuel", m.stats.Fuel/max(m.stats.Attempts, 1))
	fmt.Fprintf(w, "%-10s %d, %d started, with %s of memory in all\n", "instances", m.stats.Instances, m.stats.Started, bytesize.Size(m.stats.Memory).Rounded())
	_, err := fmt.Fprintf(w, "%-10s %v (%s)\n", "ready in", cli.Round(m.stats.Compile), source)
	return err
}

// at returns a quantile of the durations.
func (m *measured) at(share float64) time.Duration {
	if len(m.took) == 0 {
		return 0
	}
	return m.took[min(int(share*float64(len(m.took))), len(m.took)-1)]
}
