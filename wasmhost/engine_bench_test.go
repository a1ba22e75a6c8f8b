//go:build unix

package wasmhost_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
)

// serveApart returns a target that is served by another process.
func serveApart(b *testing.B) probe.Target {
	b.Helper()
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), answerEnv+"=yes")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // the benchmark is over
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	address, err := net.ResolveTCPAddr("tcp", strings.TrimSpace(line))
	if err != nil {
		b.Fatal(err)
	}
	return targetOf(address)
}

// overloaded is an engine with more due attempts than it can make.
type overloaded struct {
	engine *engine.Engine
	stop   func()
}

// concurrency is the maximum number of concurrent attempts that need a goroutine or an instance.
const concurrency = 64

// startEngine starts an engine that probes count targets at one address, each with a handler from
// next.
func startEngine(b *testing.B, count int, server probe.Target, next func() probe.Handler) *overloaded {
	b.Helper()
	set := make(probe.Set, count)
	for i := range count {
		target := server
		target.Name = "shop/" + strconv.Itoa(i)
		set[probe.ID{Target: target.Name, Kind: probe.Readiness}] = probe.Probe{
			Rule: probe.Rule{Period: 10 * probe.MinPeriod, Timeout: plenty}, Target: target, Handler: next(), HandlerName: "bench",
		}
	}
	e := engine.New(engine.Config{StartRate: 1 << 20, Concurrency: concurrency})
	return &overloaded{engine: e, stop: run(b, e, set)}
}

// attempts returns the numbers of all attempts and of unsuccessful ones.
func (c *overloaded) attempts() (all, bad uint64) {
	for _, a := range c.engine.Stats().Attempts {
		all += a.Durations.Count()
		if a.Outcome != probe.Success {
			bad += a.Durations.Count()
		}
	}
	return all, bad
}

// sample is the result of one measurement of an engine.
type sample struct {
	round    int     // of the measurement
	rate     float64 // attempts per second
	cost     float64 // microseconds of processor time per attempt
	resident float64 // resident memory of the process at the end, in MB
}

// measure measures an engine for d, after a warm-up.
func (c *overloaded) measure(b *testing.B, d time.Duration) sample {
	b.Helper()
	time.Sleep(d / 4)
	first, _ := c.attempts()
	cpu, start := cpuTime(), time.Now()
	time.Sleep(d)
	last, bad := c.attempts()
	n := float64(last - first)
	if bad > 0 || n == 0 {
		b.Errorf("%d of %d attempts did not succeed", bad, last)
	}
	return sample{
		rate: n / time.Since(start).Seconds(), cost: float64((cpuTime() - cpu).Microseconds()) / n, resident: resident(),
	}
}

// cpuTime returns the CPU time that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident returns this process's resident memory in MB, or 0 if it is unknown.
func resident() float64 {
	text, _ := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.Atoi(fields[1])
	return float64(pages*os.Getpagesize()) / (1 << 20)
}

// portable hides a handler's non-blocking attempts, as on systems without epoll.
type portable struct{ probe.Handler }

// BenchmarkEngine compares a small plugin with an equivalent built-in handler, both in non-blocking
// steps and in goroutines. Each has an engine with 10,000 targets that are due ten times a second,
// which is more than it can attempt, and 64 goroutines, as many as the plugin has instances. They
// are measured in turn, so that other load on the machine affects all of them. The memory is the
// growth of the process, including idle instances and the engine itself.
func BenchmarkEngine(b *testing.B) {
	const targets, duration = 10000, time.Second
	server := serveApart(b)
	plugin := load(b, wasmhost.Config{Module: wat("%s", talk)})
	base := handler(b, plugin, nil)
	tcp := builtin(b)
	makers := []func() probe.Handler{func() probe.Handler { return tcp }, func() probe.Handler { return portable{tcp} }, base.ForProbe}
	names := []string{"steps", "goroutines", "wasm"}
	var samples [3][]sample
	for b.Loop() {
		for i, next := range makers {
			debug.FreeOSMemory()
			before := resident()
			c := startEngine(b, targets, server, next)
			s := c.measure(b, duration)
			s.resident -= before
			s.round = len(samples[i])
			c.stop()
			samples[i] = append(samples[i], s)
			runtime.KeepAlive(c)
		}
	}
	for i, name := range names {
		b.ReportMetric(median(samples[i], func(s sample) float64 { return s.rate }), name+"/s")
		b.ReportMetric(median(samples[i], func(s sample) float64 { return s.cost }), name+"-µs-cpu")
		b.ReportMetric(median(samples[i], func(s sample) float64 { return s.resident }), name+"-MB-RSS")
		b.ReportMetric(100*median(samples[2], func(s sample) float64 { return s.rate / samples[i][s.round].rate }), "%-of-"+name)
	}
	b.ReportMetric(float64(plugin.Stats().Instances), "instances")
	b.ReportMetric(0, "ns/op")
}

func median(samples []sample, of func(sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
