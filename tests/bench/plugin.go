//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// trial is the configuration of a measurement in a process of role plugin.
type trial struct {
	measure string
	guest   string
	root    string
	cache   string
	port    int
	black   int
	count   int
	window  time.Duration
	warmup  time.Duration
	period  time.Duration
	builtin bool

	began sync.Map // when checks of settings last began, by the argument of their call of clock
}

// figures are the results of a process of role plugin, by name.
type figures map[string]float64

// trials returns the measurements of role plugin, by name.
func trials() map[string]func(*trial, context.Context, *wasmhost.Plugin) (figures, error) {
	return map[string]func(*trial, context.Context, *wasmhost.Plugin) (figures, error){
		"attempts":  (*trial).attempts,
		"instances": (*trial).instances,
		"engine":    (*trial).engine,
		"outage":    (*trial).outage,
		"runaway":   (*trial).runaway,
	}
}

// plenty is the timeout of attempts that must succeed.
const plenty = 10 * time.Second

// runPlugin is role plugin: it measures once, and prints the figures.
func runPlugin(ctx context.Context, args []string) error {
	var t trial
	f := flag.NewFlagSet("plugin", flag.ContinueOnError)
	f.StringVar(&t.measure, "measure", "attempts", "attempts, instances, engine, outage or runaway")
	f.StringVar(&t.guest, "guest", "small", "the `name` of the plugin")
	f.StringVar(&t.root, "root", ".", "the `directory` of the repository")
	f.StringVar(&t.cache, "cache", "", "a `directory` for compiled modules")
	f.IntVar(&t.port, "port", 9, "the `port` of a server that answers")
	f.IntVar(&t.black, "black-port", 9, "the `port` of a black hole")
	f.IntVar(&t.count, "count", 100, "number of targets or attempts")
	f.DurationVar(&t.window, "window", time.Second, "`duration` of the measurement")
	f.DurationVar(&t.warmup, "warmup", time.Second, "`duration` of the warm-up")
	f.DurationVar(&t.period, "period", time.Second, "the period of healthy probes")
	f.BoolVar(&t.builtin, "builtin", false, "measure the built-in handler, on goroutines")
	if err := f.Parse(args); err != nil {
		return err
	}
	p, err := t.load(ctx)
	if err != nil {
		return err
	}
	defer p.Close(context.WithoutCancel(ctx))
	measured, err := trials()[t.measure](&t, ctx, p)
	if err != nil {
		return err
	}
	return answer(os.Stdin, os.Stdout, measured, func(string) (any, error) { return measured, nil })
}

// load loads the guest and waits until it is compiled.
func (t *trial) load(ctx context.Context) (*wasmhost.Plugin, error) {
	g, ok := guests()[t.guest]
	if !ok {
		return nil, fmt.Errorf("there is no guest %q", t.guest)
	}
	module, err := g.module(t.root)
	if err != nil {
		return nil, err
	}
	c := wasmhost.Config{Module: module, CacheDir: t.cache}
	if t.measure == "runaway" {
		c.Limits = wasmhost.Limits{HostCalls: math.MaxInt32, Fuel: 1 << 62, Start: runawayTime}
	}
	if t.guest == "sonde_configure" {
		c.Trace = func(h wasmhost.HostCall) {
			if h.Function == "sonde_v1.clock" {
				t.began.Store(uint32(h.Args[0]), time.Now())
			}
		}
	}
	p, err := wasmhost.Load(c)
	if err != nil {
		return nil, err
	}
	if err := p.Wait(ctx); err != nil {
		return nil, errors.Join(err, p.Close(ctx))
	}
	return p, nil
}

func (t *trial) handler(p *wasmhost.Plugin) (*wasmhost.Handler, error) {
	return p.New(guests()[t.guest].settings)
}

// target returns the i-th target, at its own address.
func (t *trial) target(i, at int) probe.Target {
	return probe.Target{Name: fmt.Sprintf("shop/%d", i), Address: address(i), Ports: map[string]uint16{"p": uint16(at)}}
}

// goroutines hides the non-blocking attempts of a handler.
type goroutines struct{ probe.Handler }

// builtinHandler returns a built-in handler that does the same as the guests.
func builtinHandler() (probe.Handler, error) {
	h, err := tcpprobe.New(tcpprobe.Config{Port: "p", Send: "PING\r\n", Expect: strings.TrimSpace(pong)})
	return goroutines{h}, err
}

// alternations is how many times the sides of the trial attempts alternate.
const alternations = 10

// warmWorkers is the number of concurrent attempts that keep the processors from sleeping.
const warmWorkers = 8

// attempts measures the CPU time of an attempt by the plugin and by the built-in handler: with warmWorkers concurrent attempts, and
// with single attempts in sequence.
func (t *trial) attempts(ctx context.Context, p *wasmhost.Plugin) (figures, error) {
	plugin, err := t.handler(p)
	if err != nil {
		return nil, err
	}
	defer plugin.Close()
	builtin, err := builtinHandler()
	if err != nil {
		return nil, err
	}
	sides := map[string]func() probe.Handler{"plugin": plugin.ForProbe, "builtin": func() probe.Handler { return builtin }}
	f := figures{}
	for suffix, workers := range map[string]int{"": warmWorkers, " alone": 1} {
		spent, made := map[string]time.Duration{}, map[string]int64{}
		for round := range alternations + 1 {
			for name, next := range sides {
				cpu, n, err := t.attemptsOf(ctx, workers, next)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				if round > 0 { // the first one is the warm-up
					spent[name], made[name] = spent[name]+cpu, made[name]+n
				}
			}
		}
		for name := range sides {
			f[name+suffix] = spent[name].Seconds() * 1e6 / float64(made[name])
		}
	}
	return f, nil
}

// attemptsOf lets workers make attempts for a while, each with its own handler and target.
func (t *trial) attemptsOf(ctx context.Context, workers int, next func() probe.Handler) (spent time.Duration, made int64, err error) {
	before, err := ownCPU()
	if err != nil {
		return 0, 0, err
	}
	var all atomic.Int64
	var working sync.WaitGroup
	failed := make(chan error, workers)
	until := time.Now().Add(t.window / alternations)
	for i := range workers {
		working.Go(func() {
			h, target := next(), t.target(i, t.port)
			for first := true; first || time.Now().Before(until); first = false {
				attempt, cancel := context.WithTimeout(ctx, plenty)
				r := h.Probe(attempt, target)
				cancel()
				if r.Outcome != probe.Success {
					failed <- fmt.Errorf("attempt: %s: %s", r.Reason, r.Detail)
					return
				}
				all.Add(1)
			}
		})
	}
	working.Wait()
	select {
	case err := <-failed:
		return 0, 0, err
	default:
	}
	after, err := ownCPU()
	return after - before, all.Load(), err
}

// refused is a port on which nothing listens.
const refused = 9

// mostStarts is the maximum number of attempts that may end before an instance was started, on a busy machine.
const mostStarts = 20

// firstInstances is the number of instances whose start is measured.
const firstInstances = 100

// instances starts attempts that hang, one after another, and measures the time of a start and the memory of an attempt in
// progress. An attempt that is refused first creates everything that the instances share, such as their image.
func (t *trial) instances(ctx context.Context, p *wasmhost.Plugin) (figures, error) {
	_, silent, err := listen(backlog)
	if err != nil {
		return nil, err
	}
	h, err := t.handler(p)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	var attempts sync.WaitGroup
	defer attempts.Wait()
	defer stop()
	ended := make(chan probe.Result, t.count)
	var last probe.Result
	for range mostStarts {
		last = h.Probe(ctx, t.target(0, refused))
		if p.Stats().Started > 0 {
			break
		}
	}
	first := p.Stats()
	if first.Started == 0 {
		return nil, fmt.Errorf("no instance was started: %s: %s", last.Reason, last.Detail)
	}
	started := first
	debug.FreeOSMemory()
	before, err := proportional(os.Getpid())
	if err != nil {
		return nil, err
	}
	for i := range t.count {
		attempts.Go(func() { ended <- h.ForProbe().Probe(ctx, t.target(i, silent)) })
		fresh := uint64(max(0, i+1-first.Idle)) // Instances includes those that are being started
		for st := p.Stats(); st.Instances-st.Idle < i+1 || st.Started-first.Started < fresh; st = p.Stats() {
			select {
			case r := <-ended:
				return nil, fmt.Errorf("attempt %d: %s: %s", i+1, r.Reason, r.Detail)
			case <-time.After(50 * time.Microsecond):
			}
		}
		if i+1 == min(t.count, firstInstances) {
			started = p.Stats()
		}
	}
	if err := pass(ctx, t.warmup); err != nil { // until they read
		return nil, err
	}
	debug.FreeOSMemory()
	after, err := proportional(os.Getpid())
	if n := started.Started - first.Started; n > 0 {
		return figures{
			"ms": (started.Start - first.Start).Seconds() * 1e3 / float64(n), "KB": (after - before) / 1e3 / float64(t.count),
		}, err
	}
	return nil, errors.New("no instance was started")
}

// startEngine starts an engine. Stop stops it, and waits for it.
func startEngine(ctx context.Context, c engine.Config, set probe.Set) (e *engine.Engine, stop func(), err error) {
	if e, err = engineOf(c, set); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return e, func() {
		cancel()
		<-ended
	}, nil
}

// busyConcurrency is how many concurrent attempts of the trial engine may need a goroutine.
const busyConcurrency = 64

// engine measures an engine with more due attempts than it can make, with either the plugin or the built-in handler.
func (t *trial) engine(ctx context.Context, p *wasmhost.Plugin) (figures, error) {
	base, err := t.handler(p)
	if err != nil {
		return nil, err
	}
	builtin, err := builtinHandler()
	if err != nil {
		return nil, err
	}
	if r := base.Probe(ctx, t.target(0, t.port)); r.Outcome != probe.Success {
		return nil, fmt.Errorf("attempt: %s: %s", r.Reason, r.Detail)
	}
	debug.FreeOSMemory()
	idle, err := proportional(os.Getpid())
	if err != nil {
		return nil, err
	}
	set := make(probe.Set, t.count)
	for i := range t.count {
		h := builtin
		if !t.builtin {
			h = base
		}
		target := t.target(i, t.port)
		set[probe.ID{Target: target.Name, Kind: probe.Readiness}] = probe.Probe{
			Rule: probe.Rule{Period: 10 * probe.MinPeriod, Timeout: plenty}, Target: target, Handler: h, HandlerName: "bench",
		}
	}
	e, stop, err := startEngine(ctx, engine.Config{StartRate: 1 << 20, Concurrency: busyConcurrency}, set)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := pass(ctx, t.warmup); err != nil {
		return nil, err
	}
	before, _ := made(e, "bench")
	cpu, err := ownCPU()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := pass(ctx, t.window); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	after, bad := made(e, "bench")
	spent, err := ownCPU()
	if err != nil {
		return nil, err
	}
	if bad > 0 || after == before {
		return nil, fmt.Errorf("%d of %d attempts did not succeed", bad, after)
	}
	busy, err := proportional(os.Getpid())
	n := float64(after - before)
	return figures{"rate": n / took.Seconds(), "µs": (spent - cpu).Seconds() * 1e6 / n, "MB": (busy - idle) / 1e6}, err
}

// made returns the number of attempts that an engine has made with a handler, and of those that did not succeed.
func made(e *engine.Engine, handler string) (all, bad uint64) {
	for _, a := range e.Stats().Attempts {
		if a.HandlerName != handler {
			continue
		}
		all += a.Durations.Count()
		if a.Outcome != probe.Success {
			bad += a.Durations.Count()
		}
	}
	return all, bad
}

// outage measures the share of attempts at healthy targets that are made and succeed while many more targets of the plugin hang.
func (t *trial) outage(ctx context.Context, p *wasmhost.Plugin) (figures, error) {
	base, err := t.handler(p)
	if err != nil {
		return nil, err
	}
	set := make(probe.Set, healthy+t.count)
	for i := range healthy + t.count {
		name, at := "healthy", t.port
		if i >= healthy {
			name, at = "hanging", t.black
		}
		target := t.target(i, at)
		set[probe.ID{Target: target.Name, Kind: probe.Readiness}] = probe.Probe{
			Rule: probe.Rule{Period: t.period, Timeout: t.period}, Target: target, Handler: base, HandlerName: name,
		}
	}
	e, stop, err := startEngine(ctx, engine.Config{}, set)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := pass(ctx, 2*t.warmup); err != nil {
		return nil, err
	}
	before, badBefore := made(e, "healthy")
	hangingBefore, _ := made(e, "hanging")
	if err := pass(ctx, t.window); err != nil {
		return nil, err
	}
	after, bad := made(e, "healthy")
	hanging, _ := made(e, "hanging")
	due := healthy * t.window.Seconds() / t.period.Seconds()
	return figures{
		"share":   100 * min(1, float64(after-before-(bad-badBefore))/due),
		"hanging": float64(hanging-hangingBefore) / t.window.Seconds(), "instances": float64(p.Stats().Instances),
	}, nil
}

const (
	// runaways is the number of guests that run away at the same time.
	runaways = 64

	// runawayTime is the timeout of their attempts, and of checks of their settings.
	runawayTime = 100 * time.Millisecond
)

// runaway measures how late guests that do not end are stopped, and the lateness of healthy built-in probes before and during that.
func (t *trial) runaway(ctx context.Context, _ *wasmhost.Plugin) (figures, error) {
	h, err := handlerOf("tcp", "")
	if err != nil {
		return nil, err
	}
	ids, set := load{probes: healthy}.well(), probe.Set{}
	for i, id := range ids {
		target := probe.Target{Address: address(i), Ports: map[string]uint16{"p": uint16(t.port)}}
		set[id] = probe.Probe{Rule: probe.Rule{Period: t.period}, Target: target, Handler: h, HandlerName: "tcp"}
	}
	e, stop, err := startEngine(ctx, engine.Config{}, set)
	if err != nil {
		return nil, err
	}
	defer stop()
	w := newWitness(e, ids)
	ctx, stopWatching := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stopWatching()
	watching.Go(func() { w.watch(ctx) })
	if err := pass(ctx, t.warmup); err != nil {
		return nil, err
	}
	w.read(time.Now())
	if err := pass(ctx, t.window); err != nil {
		return nil, err
	}
	_, alone, _ := w.read(time.Now())
	var late []time.Duration
	started := 0
	for until := time.Now().Add(t.window); time.Now().Before(until); started += runaways {
		some, err := t.runAway(ctx)
		if err != nil {
			return nil, err
		}
		late = append(late, some...)
	}
	n, beside, _ := w.read(time.Now())
	if len(late) == 0 || n == 0 {
		return nil, fmt.Errorf("%d of %d guests were stopped, %d healthy attempts made", len(late), started, n)
	}
	slices.Sort(late)
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	return figures{
		"worst": ms(late[len(late)-1]), "median": ms(median(late)), "stopped": 100 * float64(len(late)) / float64(started),
		"alone": ms(alone), "beside": ms(beside),
	}, nil
}

// runAway starts guests that do not end, in their own plugin, since a plugin whose attempts time out is suspended. It returns how
// late they were stopped: after the deadline plus abi.Grace. An attempt that ends before its deadline was refused for lack of
// processor time.
func (t *trial) runAway(ctx context.Context) (late []time.Duration, err error) {
	p, err := t.load(ctx)
	if err != nil {
		return nil, err
	}
	defer p.Close(ctx)
	var running sync.WaitGroup
	var lateMu sync.Mutex // guards late
	begin := time.Now()
	for i := range runaways {
		running.Go(func() {
			after := t.runOne(ctx, p, i, begin.Add(runawayTime))
			lateMu.Lock()
			defer lateMu.Unlock()
			if after > 0 {
				late = append(late, after)
			}
		})
	}
	running.Wait()
	return late, ctx.Err()
}

// runOne runs a guest until it is stopped, and returns how late it was stopped.
func (t *trial) runOne(ctx context.Context, p *wasmhost.Plugin, i int, deadline time.Time) time.Duration {
	if t.guest == "sonde_configure" {
		return t.checkOne(p, i)
	}
	h, err := t.handler(p)
	if err != nil {
		return 0
	}
	defer h.Close()
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	h.Probe(ctx, t.target(i, t.port))
	return time.Since(deadline) - abi.Grace
}

// firstCheck is the first number in the settings of checks that do not end.
const firstCheck = 1000

// checkOne lets a guest check settings until it is stopped, and returns how late it was stopped: after the time for the check,
// which begins when there is an instance, and is granted again if others had the processors. It returns 0 if the check was not
// made.
func (t *trial) checkOne(p *wasmhost.Plugin, i int) time.Duration {
	number := fmt.Sprint(firstCheck + i)
	h, err := p.New(map[string]any{"port": number})
	ended := time.Now()
	if err == nil {
		defer h.Close()
		err = h.Unchecked() // others had the processors
	}
	began, ok := t.began.Load(binary.LittleEndian.Uint32([]byte(number)))
	if err == nil || !ok || !strings.Contains(err.Error(), "still ran") {
		return 0
	}
	return ended.Sub(began.(time.Time)) - runawayTime - abi.Grace
}
