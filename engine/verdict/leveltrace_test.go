package verdict

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/tier"
)

// Durations of attempts at healthy servers do not count as a rise. They were recorded from nginx and redis, over minutes, on two
// processors shared with five builds; the files have microseconds. There is at most one false alarm per day among 10,000 targets
// with a period of a second. Each day consists of pieces of a trace of up to ten minutes, and the engine is restarted once.
func TestDurationsOfHealthyServersHaveNotRisen(t *testing.T) {
	var traces [][]float64
	files, err := filepath.Glob("testdata/latency/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no traces: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var trace []float64
		for _, field := range strings.Fields(string(text)) {
			n, err := strconv.ParseFloat(field, 64)
			if err != nil {
				t.Fatal(err)
			}
			trace = append(trace, n/1e6)
		}
		traces = append(traces, trace)
	}
	targets := tier.Pick(20, 200, 10_000)
	var mistakes atomic.Int64
	var all sync.WaitGroup
	for worker := range 2 {
		all.Go(func() {
			for target := worker; target < targets; target += 2 {
				mistakes.Add(int64(mistakesOfADay(traces[target%len(traces)], rand.New(rand.NewPCG(9, uint64(target))))))
			}
		})
	}
	if all.Wait(); mistakes.Load() > 1 {
		t.Errorf("%d mistakes among %d targets in a day", mistakes.Load(), targets)
	}
}

// mistakesOfADay returns the number of false alarms in a day of a healthy target.
func mistakesOfADay(trace []float64, r *rand.Rand) (n int) {
	const day = 24 * 60 * 60
	var l Level
	now, restart, was := time.Unix(0, 0), r.IntN(day), false
	at, left := 0, 0
	for i := range day {
		if left == 0 {
			at, left = r.IntN(len(trace)), 1+r.IntN(600)
		}
		if i == restart {
			l = Level{}
		}
		now = now.Add(time.Second)
		_, isRisen := l.Add(trace[at%len(trace)], now)
		if isRisen && !was {
			n++
		}
		was, at, left = isRisen, at+1, left-1
	}
	return n
}
