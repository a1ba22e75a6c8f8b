//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
)

func TestTableShowsWhichGoalsAreMet(t *testing.T) {
	lines := []line{
		{What: "better", Unit: "×", Goal: 1, Measured: 0.5, Rounds: []float64{0.5, 0.4, 0.6}, Note: "fast"},
		{What: "worse", Unit: "ms", Goal: 10, Measured: 25},
		{What: "enough", Unit: "%", Goal: 95, AtLeast: true, Measured: 98},
		{What: "short", Unit: "%", Goal: 95, AtLeast: true, Measured: 50},
		{What: "none", Zero: true},
		{What: "some", Zero: true, Measured: 3},
		{What: "no goal", Unit: "B", Measured: 491.4},
		{What: "absent", Goal: 1, Missing: "there is\n no haproxy"},
	}
	var out strings.Builder
	if err := writeTable(&out, lines); err != nil {
		t.Fatal(err)
	}
	want := `
what     goal     measured  of goal      note
better   ≤ 1×     0.50×     0.50         fast; 0.40 to 0.60× in 3 rounds
worse    ≤ 10 ms  25 ms     2.50 missed  
enough   ≥ 95 %   98 %      0.97         
short    ≥ 95 %   50 %      1.90 missed  
none     0        0         met          
some     0        3         missed       
no goal  -        491 B     -            
absent   ≤ 1      -         -            not measured: there is no haproxy
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		all  []float64
		want float64
	}{
		{[]float64{3}, 3}, {[]float64{3, 1}, 1}, {[]float64{9, 1, 2}, 2}, {[]float64{5, 4, 1, 3, 2}, 3},
	} {
		if got := median(slices.Clone(c.all)); got != c.want {
			t.Errorf("the median of %v is %v, want %v", c.all, got, c.want)
		}
	}
}

func TestPercentileIsOfTheDifference(t *testing.T) {
	bounds := []time.Duration{1, 2, 3}
	before := engine.Histogram{Bounds: bounds, Counts: []uint64{1000, 0, 0, 0}}
	cases := []struct {
		name   string
		before engine.Histogram
		counts []uint64
		want   time.Duration
	}{
		{"since the beginning", engine.Histogram{}, []uint64{1000, 100, 0, 0}, 2},
		{"one in a hundred", before, []uint64{1099, 0, 1, 0}, 1},
		{"two in a hundred", before, []uint64{1098, 0, 2, 0}, 3},
		{"above the last bound", before, []uint64{1000, 0, 0, 5}, 6},
	}
	for _, c := range cases {
		got, err := percentile(c.before, engine.Histogram{Bounds: bounds, Counts: c.counts}, 0.99)
		if got != c.want || err != nil {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
	}
	if _, err := percentile(before, before, 0.99); err == nil {
		t.Error("nothing came between, and there is a percentile")
	}
}

func TestBenchmarkOutputIsParsed(t *testing.T) {
	const text = `goos: linux
BenchmarkStep-2        	27060912	        44.50 ns/op	       0 B/op	       0 allocs/op
BenchmarkStep-2        	27060912	        46.50 ns/op	       8 B/op	       1 allocs/op
BenchmarkStepper-2     	27060912	        99.50 ns/op	       8 B/op	       1 allocs/op
BenchmarkGauge         	27060912	         1.50 ns/op	        32.00 kept-MB	       0 B/op	       0 allocs/op
PASS
`
	step, err := parseBenchmark(text, "BenchmarkStep")
	if want := []result{{44.5, 0}, {46.5, 1}}; !slices.Equal(step, want) || err != nil {
		t.Errorf("got %v, %v, want %v", step, err, want)
	}
	gauge, err := parseBenchmark(text, "BenchmarkGauge")
	if want := []result{{1.5, 0}}; !slices.Equal(gauge, want) || err != nil {
		t.Errorf("got %v, %v, want %v", gauge, err, want)
	}
	if _, err := parseBenchmark(text, "BenchmarkNone"); err == nil {
		t.Error("a benchmark that did not run was read")
	}
	if _, err := parseBenchmark("BenchmarkStep-2 1 44.50 ns/op\n", "BenchmarkStep"); err == nil || !strings.Contains(err.Error(), "allocs/op") {
		t.Errorf("a line without allocations gave %v", err)
	}
}
