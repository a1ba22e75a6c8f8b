package engine_test

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// probesOf returns n probes that share a handler and a rule, one on each target.
func probesOf(n int) probe.Set {
	set := make(probe.Set, n)
	p := with(says(probe.Success))
	p.Rule.Period = 100 * time.Second
	p.Revision = "1"
	for i := range n {
		set[probe.ID{Target: fmt.Sprintf("shop/%d", i), Kind: probe.Readiness}] = p
	}
	return set
}

func reportAll(e *engine.Engine, set probe.Set) {
	for id := range set {
		e.Report(probe.Instance{Target: id.Target, ID: "static", Phase: probe.Running, Since: time.Now()})
	}
}

// BenchmarkMemoryPerProbe reports the resident memory of a waiting probe, including names and the target's record.
func BenchmarkMemoryPerProbe(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				before := resident(b)
				e := engine.New(engine.Config{})
				fill(b, e, n)
				b.ReportMetric(float64(resident(b)-before)/float64(n), "B-RSS/probe")
				runtime.KeepAlive(e)
			}
		})
	}
}

// fill applies n probes with their instances, and releases everything except the engine.
func fill(b *testing.B, e *engine.Engine, n int) {
	set := probesOf(n)
	if _, err := e.Apply(set); err != nil {
		b.Fatal(err)
	}
	reportAll(e, set)
}

// resident returns this process's resident memory in bytes, after a garbage collection.
func resident(b *testing.B) int {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip("there is no /proc/self/statm here")
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		b.Fatal(err)
	}
	return pages * os.Getpagesize()
}

func BenchmarkApply(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		e, set := engine.New(engine.Config{}), probesOf(n)
		b.Run(fmt.Sprintf("unchanged/%d", n), func(b *testing.B) { applies(b, e, set) })
		b.Run(fmt.Sprintf("1000changed/%d", n), func(b *testing.B) {
			p := with(says(probe.Success))
			for i := 0; b.Loop(); i++ {
				p.Revision = strconv.Itoa(i)
				for k := range 1000 {
					set[probe.ID{Target: fmt.Sprintf("shop/%d", k), Kind: probe.Readiness}] = p
				}
				if _, err := e.Apply(set); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func applies(b *testing.B, e *engine.Engine, set probe.Set) {
	if _, err := e.Apply(set); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Apply(set); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStatus(b *testing.B) {
	e := engine.New(engine.Config{})
	fill(b, e, 10_000)
	id := probe.ID{Target: "shop/77", Kind: probe.Readiness}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := e.Status(id); !ok {
			b.Fatal("there is no such probe")
		}
	}
}

func BenchmarkTargetGauge(b *testing.B) {
	e := engine.New(engine.Config{})
	fill(b, e, 1)
	gauge, _ := e.WatchTarget("shop/0")
	b.ReportAllocs()
	for b.Loop() {
		if gauge.Gateway().TakesRequests() {
			b.Fatal("no attempt was made")
		}
	}
}

func BenchmarkGauge(b *testing.B) {
	e := engine.New(engine.Config{})
	fill(b, e, 1)
	gauge, _ := e.Watch(probe.ID{Target: "shop/0", Kind: probe.Readiness})
	b.ReportAllocs()
	passing := 0
	for b.Loop() {
		if gauge.Passing() {
			passing++
		}
	}
}
