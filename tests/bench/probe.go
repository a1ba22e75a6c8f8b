//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// load is the configuration of a process of role probe.
type load struct {
	handler     string
	probes      int
	port        int
	period      time.Duration
	timeout     time.Duration
	concurrency int
	idle        bool
	black       int
	blackPort   int
	profile     string
	root        string
	ca          string
}

func parseLoad(args []string) (load, error) {
	var l load
	f := flag.NewFlagSet("probe", flag.ContinueOnError)
	f.StringVar(&l.handler, "handler", "tcp", "grpc, or the name of one of row options: tcp, half-open, http …")
	f.IntVar(&l.probes, "probes", 2000, "number of probes, each at its own address")
	f.IntVar(&l.port, "port", 9, "the `port` to probe")
	f.DurationVar(&l.period, "period", time.Second, "the rule's period")
	f.DurationVar(&l.timeout, "timeout", probe.DefaultTimeout, "the rule's timeout")
	f.IntVar(&l.concurrency, "concurrency", 0, "the engine's concurrency; default: the engine's")
	f.BoolVar(&l.idle, "idle", false, "do not run the engine: all probes stay idle")
	f.IntVar(&l.black, "black", 0, "number of further tcp probes of a black hole, with a period of ten timeouts")
	f.IntVar(&l.blackPort, "black-port", 0, "the black hole's `port`")
	f.StringVar(&l.root, "root", ".", "the `directory` of the repository, for the plugin grpc")
	f.StringVar(&l.ca, "ca", "", "the `file` of the authority of a target that speaks TLS")
	f.StringVar(&l.profile, "cpuprofile", "", "write a CPU profile to a `file`, from ready to end")
	return l, f.Parse(args)
}

// counts is the response of a process of role probe.
type counts struct {
	Attempts uint64 // so far
	Failures uint64 // those of Attempts that did not succeed

	Lateness engine.Histogram // so far
	Skipped  uint64           // attempts skipped so far
	Busy     time.Duration    // the engine's loop, so far
	InFlight int
	Queued   int

	Allocations uint64 // so far
	Allocated   uint64 // bytes, so far

	Well  int           // attempts of the healthy probes, since the last query
	P99   time.Duration // the 99th percentile of their lateness
	Worst time.Duration
}

// runProbe is role probe: an embedded engine with the built-in handlers, as in a gateway. It responds to each line of standard
// input with counts; on the line "settle", it first returns unused memory to the system.
func runProbe(ctx context.Context, args []string) error {
	l, err := parseLoad(args)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	e, err := l.engine()
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		if l.idle {
			<-ctx.Done()
			ended <- nil
			return
		}
		ended <- e.Run(ctx)
	}()
	err = l.converse(ctx, e)
	stop()
	return errors.Join(err, <-ended)
}

// converse responds to lines until standard input ends.
func (l load) converse(ctx context.Context, e *engine.Engine) error {
	w, stop := l.witness(ctx, e)
	defer stop()
	profiled, err := profile(l.profile)
	if err != nil {
		return err
	}
	defer profiled()
	debug.FreeOSMemory()
	return answer(os.Stdin, os.Stdout, count(e, w), func(question string) (any, error) {
		if question == "settle" {
			debug.FreeOSMemory()
		}
		return count(e, w), nil
	})
}

// witness returns a witness of the healthy probes, if there are others as well.
func (l load) witness(ctx context.Context, e *engine.Engine) (w *witness, stop func()) {
	if l.black == 0 {
		return newWitness(e, nil), func() {}
	}
	w = newWitness(e, l.well())
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { w.watch(ctx) })
	return w, func() {
		cancel()
		watching.Wait()
	}
}

func profile(name string) (stop func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		file.Close()
	}, pprof.StartCPUProfile(file)
}

// engine returns an engine with the probes and instances of the load.
func (l load) engine() (*engine.Engine, error) {
	set, err := l.set()
	if err != nil {
		return nil, err
	}
	return engineOf(engine.Config{Concurrency: l.concurrency}, set)
}

// engineOf returns an engine with the probes of a set, whose targets are all running.
func engineOf(c engine.Config, set probe.Set) (*engine.Engine, error) {
	e := engine.New(c)
	if _, err := e.Apply(set); err != nil {
		return nil, err
	}
	now := time.Now()
	for id := range set {
		e.Report(probe.Instance{Target: id.Target, ID: "static", Phase: probe.Running, Since: now})
	}
	return e, nil
}

func (l load) set() (probe.Set, error) {
	h, err := l.newHandler()
	if err != nil {
		return nil, err
	}
	rule := probe.Rule{Period: l.period, Timeout: l.timeout}
	set := make(probe.Set, l.probes+l.black)
	ports := map[string]uint16{"p": uint16(l.port)}
	for i, id := range l.well() {
		set[id] = probe.Probe{
			Rule: rule, Handler: h, HandlerName: l.handler, Revision: "1",
			Target: probe.Target{Address: address(i), Ports: ports},
		}
	}
	return set, l.addBlack(set)
}

// newHandler returns the handler of the healthy probes.
func (l load) newHandler() (probe.Handler, error) {
	if l.handler != "grpc" {
		return handlerOf(l.handler, l.ca)
	}
	t := trial{guest: l.handler, root: l.root}
	p, err := t.load(context.Background()) // in use until the process exits
	if err != nil {
		return nil, err
	}
	return t.handler(p)
}

// addBlack adds the probes of the black hole.
func (l load) addBlack(set probe.Set) error {
	h, err := handlerOf("tcp", "")
	if err != nil {
		return err
	}
	ports := map[string]uint16{"p": uint16(l.blackPort)}
	for i := range l.black {
		set[probe.ID{Target: fmt.Sprintf("black/%d", i), Kind: probe.Readiness}] = probe.Probe{
			Rule: probe.Rule{Period: 10 * l.timeout, Timeout: l.timeout}, Handler: h, HandlerName: "tcp", Revision: "1",
			Target: probe.Target{Address: address(l.probes + i), Ports: ports},
		}
	}
	return nil
}

// well returns the healthy probes.
func (l load) well() []probe.ID {
	ids := make([]probe.ID, l.probes)
	for i := range ids {
		ids[i] = probe.ID{Target: fmt.Sprintf("shop/%d", i), Kind: probe.Liveness}
	}
	return ids
}

// address returns the address of the i-th probe's target: one of 8 million loopback addresses. Real targets also have different
// addresses, and a single address has too few ports.
func address(i int) string {
	return fmt.Sprintf("127.%d.%d.%d", 1+i>>16&0x7f, i>>8&0xff, i&0xff)
}

// count reads the engine's counters.
func count(e *engine.Engine, w *witness) counts {
	st := e.Stats()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c := counts{
		Lateness: st.Lateness, Skipped: st.Late + st.Overrun + st.Shed, Busy: st.Busy, InFlight: st.InFlight, Queued: st.Queued,
		Allocations: m.Mallocs, Allocated: m.TotalAlloc,
	}
	for _, a := range st.Attempts {
		n := a.Durations.Count()
		c.Attempts += n
		if a.Outcome != probe.Success {
			c.Failures += n
		}
	}
	c.Well, c.P99, c.Worst = w.read(time.Now())
	return c
}
