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

// serveApart returns a target that a process of its own serves.
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
		_ = cmd.Wait() // the benchmark has ended
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

// crew is an engine with many targets that has more to do than it can.
type crew struct {
	engine *engine.Engine
	stop   func()
}

// atOnce is how many attempts may be under way that need a goroutine or an instance.
const atOnce = wasmhost.DefaultInstances

// man starts an engine that probes count targets of one address, each by the next
// handler.
func man(b *testing.B, count int, server probe.Target, next func() probe.Handler) *crew {
	b.Helper()
	set := make(probe.Set, count)
	for i := range count {
		target := server
		target.Name = "shop/" + strconv.Itoa(i)
		set[probe.ID{Target: target.Name, Kind: probe.Readiness}] = probe.Probe{
			Rule: probe.Rule{Period: 10 * probe.MinPeriod, Timeout: plenty}, Target: target, Handler: next(), HandlerName: "bench",
		}
	}
	e := engine.New(engine.Config{StartRate: 1 << 20, Concurrency: atOnce})
	return &crew{engine: e, stop: run(b, e, set)}
}

// attempts returns how many were made, and how many of them did not succeed.
func (c *crew) attempts() (all, bad uint64) {
	for _, a := range c.engine.Stats().Attempts {
		all += a.Took.Count()
		if a.Outcome != probe.Success {
			bad += a.Took.Count()
		}
	}
	return all, bad
}

// shift is what an engine did in a while.
type shift struct {
	round    int
	rate     float64 // attempts per second
	cost     float64 // microseconds of processor time for each
	resident float64 // MB at the end, of the process
}

// work lets an engine run for a while, after another while to get into its stride.
func (c *crew) work(b *testing.B, while time.Duration) shift {
	b.Helper()
	time.Sleep(while / 4)
	first, _ := c.attempts()
	cpu, began := processor(), time.Now()
	time.Sleep(while)
	last, bad := c.attempts()
	n := float64(last - first)
	if bad > 0 || n == 0 {
		b.Errorf("%d of %d attempts did not succeed", bad, last)
	}
	return shift{
		rate: n / time.Since(began).Seconds(), cost: float64((processor() - cpu).Microseconds()) / n, resident: resident(),
	}
}

// processor returns the processor time that this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident returns this process' resident memory in MB; 0 where that is not known.
func resident() float64 {
	text, _ := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.Atoi(fields[1])
	return float64(pages*os.Getpagesize()) / (1 << 20)
}

// portable hides that a handler can be driven in steps, as where there is no epoll.
type portable struct{ probe.Handler }

// BenchmarkEngine compares a small plugin with the built-in handler that does the same,
// in steps and by goroutines, each in an engine of its own with 10,000 targets that are
// due ten times a second, which is more than can be done, and 64 goroutines, as many as
// the plugin may have instances. They take turns, so that whatever else the machine
// does counts for both. The memory is what the process has grown by, idle instances
// and the engine's own included.
func BenchmarkEngine(b *testing.B) {
	const targets, while = 10000, time.Second
	server := serveApart(b)
	plugin := load(b, wasmhost.Config{Module: wat("%s", talk)})
	base := handler(b, plugin, nil)
	tcp := builtin(b)
	makers := []func() probe.Handler{func() probe.Handler { return tcp }, func() probe.Handler { return portable{tcp} }, base.ForProbe}
	names := []string{"steps", "goroutines", "wasm"}
	var shifts [3][]shift
	for b.Loop() {
		for i, next := range makers {
			debug.FreeOSMemory()
			before := resident()
			c := man(b, targets, server, next)
			s := c.work(b, while)
			s.resident -= before
			s.round = len(shifts[i])
			c.stop()
			shifts[i] = append(shifts[i], s)
			runtime.KeepAlive(c)
		}
	}
	for i, name := range names {
		b.ReportMetric(median(shifts[i], func(s shift) float64 { return s.rate }), name+"/s")
		b.ReportMetric(median(shifts[i], func(s shift) float64 { return s.cost }), name+"-µs-cpu")
		b.ReportMetric(median(shifts[i], func(s shift) float64 { return s.resident }), name+"-MB-RSS")
		b.ReportMetric(100*median(shifts[2], func(s shift) float64 { return s.rate / shifts[i][s.round].rate }), "%-of-"+name)
	}
	b.ReportMetric(float64(plugin.Stats().Instances), "instances")
	b.ReportMetric(0, "ns/op")
}

func median(shifts []shift, of func(shift) float64) float64 {
	values := make([]float64, len(shifts))
	for i, s := range shifts {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
