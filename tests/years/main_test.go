// Package years simulates engines for years, and checks laws that must hold whatever
// happens to them.
//
// A story is one engine's life for some weeks, in a testing/synctest bubble: the engine,
// the controller of restarts, the state file and the configuration work together as they
// do in `sonde run`. Targets and their responses are scripted. They become slow or
// silent, refuse, flap, exit and hang; the engine is stalled, cut off and short of
// descriptors; it is stopped, killed in the middle of a write, and starts again from the
// contents of the disk; and its configuration changes. The story's seed determines everything.
//
// The laws are checked by a model that knows the result of each attempt, and shares no code
// with the product:
//
//   - restart: no instance is restarted before one of its own probes has failed
//     failure_threshold times in a row, each time through the target's own fault.
//   - verdict: no verdict follows from attempts that could not be made.
//   - once: an instance is restarted at most once, and no target has two instances.
//   - truth: when all is quiet, the verdicts are true.
//   - flap: verdicts published before the engine's end are published after its start.
//   - change: a reload changes exactly the differences between the configurations.
//   - bounds: goroutines, memory, open handlers, probes and the state file are bounded.
//   - log: the only error records are those of injected faults.
//
// Files:
//
//	main_test.go    the flags, and TestYears, which plays stories in parallel
//	story_test.go   a story: its events and their times
//	spec_test.go    the configurations of a story
//	world_test.go   the targets and their responses
//	driver_test.go  the instances of targets, and the drivers that start them
//	life_test.go    one life of the engine, from its start to its end
//	disk_test.go    the state file after a crash
//	model_test.go   the laws
//	trace_test.go   the events, for people
//	fault_test.go   faults of the product that the laws must find
package years

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/tests/tier"
)

var (
	seed    = flag.Int64("seed", 0, "play this story only")
	first   = flag.Int64("first", 1, "the first story")
	lasting = flag.Duration("lasting", 15*time.Second, "play stories for so long")
	logs    = flag.Bool("logs", true, "show the engine's log beside what has happened, with -seed")
	years   = flag.Float64("years", 0, "play stories until they add up to so many engine-years, however long that takes")
)

// TestStory plays one story, with -seed.
func TestStory(t *testing.T) {
	if *seed == 0 {
		t.Skip("needs -seed; TestYears plays many stories")
	}
	began := time.Now()
	s := play(t, *seed, 0)
	fmt.Printf("story %d: %.3f days in %.2f s, %s\n", s.seed, s.length.Hours()/24, time.Since(began).Seconds(), s.model.counts)
}

// play plays a story, or its beginning, on one processor, so that its goroutines run in the same order each time.
func play(t *testing.T, seed int64, most time.Duration) (s *story) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	dir := stateDir(t)
	synctest.Test(t, func(t *testing.T) {
		s = newStory(t, seed, dir)
		if most > 0 {
			s.length = most
		}
		s.play()
	})
	return s
}

// stateDir returns a directory for state files, in memory if possible: a story writes its file a million times, and decides itself
// what remains of it after a crash.
func stateDir(t *testing.T) string {
	if dir, err := os.MkdirTemp("/dev/shm", "sonde-years-"); err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		return dir
	}
	return t.TempDir()
}

func TestAStoryIsReplayed(t *testing.T) {
	tier.Slow(t)
	if *seed != 0 {
		t.Skip("with -seed TestStory plays it")
	}
	const most = 4 * 24 * time.Hour
	one, two := play(t, *first, most), play(t, *first, most)
	if one.trace.digest != two.trace.digest {
		t.Errorf("story %d was not the same the second time: %s and %s\n%s", *first, one.model.counts, two.model.counts, one.trace.difference(two.trace))
	}
}

// TestYears plays stories, each in its own process, on all processors.
func TestYears(t *testing.T) {
	tier.CI(t)
	if *seed != 0 {
		t.Skip("with -seed TestStory plays it")
	}
	r := &runner{T: t, began: time.Now(), next: *first}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if *years == 0 {
		ctx, cancel = context.WithTimeout(ctx, *lasting)
		defer cancel()
	}
	var running sync.WaitGroup
	for range runtime.NumCPU() {
		running.Go(func() {
			for ctx.Err() == nil && !t.Failed() && (*years == 0 || r.years() < *years) {
				r.story(ctx)
			}
		})
	}
	running.Wait()
	took := time.Since(r.began)
	t.Logf("%d stories, %.2f engine-years in %v: %.2f a minute", r.stories.Load(), r.years(), took.Round(time.Second), r.years()/took.Minutes())
	if r.stories.Load() == 0 {
		t.Error("no story was finished")
	}
}

// runner plays stories in sequence.
type runner struct {
	*testing.T
	began   time.Time
	stories atomic.Int64
	micros  atomic.Int64 // engine-years, in millionths

	mu   sync.Mutex // guards next
	next int64
}

func (r *runner) years() float64 { return float64(r.micros.Load()) / 1e6 }

func (r *runner) take() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	return r.next - 1
}

var daysOfStory = regexp.MustCompile(`(?m)^story \d+: ([0-9.]+) days`)

// story plays the next story in a process, and adds up the simulated time. The first story is finished however slow the machine is.
func (r *runner) story(ctx context.Context) {
	n := r.take()
	if n == *first {
		ctx = r.Context()
	}
	program, err := os.Executable()
	if err != nil {
		r.Error(err)
		return
	}
	c := exec.CommandContext(ctx, program, "-test.run=^TestStory$", "-seed="+strconv.FormatInt(n, 10), "-logs=false")
	c.Env = append(os.Environ(), "GOGC=400") // it has little memory
	out, err := c.CombinedOutput()
	switch {
	case ctx.Err() != nil: // the time is up
	case err != nil:
		r.Errorf("story %d: %v\nplay it again with: go test ./tests/years -seed %d\n%s", n, err, n, bytes.TrimSpace(out))
	default:
		days, _ := strconv.ParseFloat(string(daysOfStory.FindSubmatch(out)[1]), 64)
		r.stories.Add(1)
		r.micros.Add(int64(days / 365.25 * 1e6))
	}
}
