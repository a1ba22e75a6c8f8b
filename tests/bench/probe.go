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

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// load is what a process that plays the part of an embedder is given to probe.
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
}

func parseLoad(args []string) (load, error) {
	var l load
	f := flag.NewFlagSet("probe", flag.ContinueOnError)
	f.StringVar(&l.handler, "handler", "tcp", "tcp, half-open or http")
	f.IntVar(&l.probes, "probes", 2000, "how many probes, each at an address of its own")
	f.IntVar(&l.port, "port", 9, "the `port` to probe")
	f.DurationVar(&l.period, "period", time.Second, "the rule's period")
	f.DurationVar(&l.timeout, "timeout", probe.DefaultTimeout, "the rule's timeout")
	f.IntVar(&l.concurrency, "concurrency", 0, "the engine's concurrency; default: its own")
	f.BoolVar(&l.idle, "idle", false, "never run the engine, so that all probes wait")
	f.IntVar(&l.black, "black", 0, "how many tcp probes of a black hole there are besides, with a period ten times the timeout")
	f.IntVar(&l.blackPort, "black-port", 0, "the black hole's `port`")
	f.StringVar(&l.profile, "cpuprofile", "", "write a CPU profile to a `file`, from ready to end")
	return l, f.Parse(args)
}

// counts is what a process that probes says when asked.
type counts struct {
	Attempts uint64 // so far
	Failures uint64 // of them, those that were no success

	Lateness engine.Histogram // so far
	Skipped  uint64           // turns, so far
	Busy     time.Duration    // the engine's loop, so far
	InFlight int
	Queued   int

	Allocations uint64 // so far
	Allocated   uint64 // bytes, so far

	Well  int           // attempts at what is well, since last asked
	P99   time.Duration // the 99th percentile of their lateness
	Worst time.Duration
}

// playProbe embeds an engine with the built-in handlers, as a gateway would, and
// probes. Each line of its standard input is answered by counts; after the line
// "settle" as much memory as can be is given back to the system first.
func playProbe(ctx context.Context, args []string) error {
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

// converse answers until standard input ends.
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

// witness returns one of the probes of what is well, if there are others too.
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

// engine returns an engine that has the load and all its targets' instances.
func (l load) engine() (*engine.Engine, error) {
	set, err := l.set()
	if err != nil {
		return nil, err
	}
	return l.engineOf(set)
}

func (l load) engineOf(set probe.Set) (*engine.Engine, error) {
	e := engine.New(engine.Config{Concurrency: l.concurrency})
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
	h, err := handlerOf(l.handler)
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

// addBlack adds the probes that time out.
func (l load) addBlack(set probe.Set) error {
	h, err := handlerOf("tcp")
	if err != nil {
		return err
	}
	ports := map[string]uint16{"p": uint16(l.blackPort)}
	for i := range l.black {
		set[probe.ID{Target: fmt.Sprintf("black/%d", i), Kind: probe.Liveness}] = probe.Probe{
			Rule: probe.Rule{Period: 10 * l.timeout, Timeout: l.timeout}, Handler: h, HandlerName: "tcp", Revision: "1",
			Target: probe.Target{Address: address(l.probes + i), Ports: ports},
		}
	}
	return nil
}

// well returns the probes of what is well.
func (l load) well() []probe.ID {
	ids := make([]probe.ID, l.probes)
	for i := range ids {
		ids[i] = probe.ID{Target: fmt.Sprintf("shop/%d", i), Kind: probe.Liveness}
	}
	return ids
}

// handlerOf returns a handler by its name; its target's port is called p.
func handlerOf(name string) (probe.Handler, error) {
	switch name {
	case "tcp":
		return tcpprobe.New(tcpprobe.Config{Port: "p"})
	case "half-open":
		return tcpprobe.New(tcpprobe.Config{Port: "p", HalfOpen: true})
	case "http":
		return httpprobe.New(httpprobe.Config{Port: "p"})
	}
	return nil, fmt.Errorf("there is no handler %q", name)
}

// address returns the address of a probe's target: one of 8 million of this
// machine that need no interface. A backend that is probed is seldom the same as
// the next one, and one address would have too few ports for all.
func address(i int) string {
	return fmt.Sprintf("127.%d.%d.%d", 1+i>>16&0x7f, i>>8&0xff, i&0xff)
}

// count asks the engine what it has done.
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
