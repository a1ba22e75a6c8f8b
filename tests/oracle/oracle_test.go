package oracle

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

var (
	scripts = flag.Int("scripts", 300, "how many random scripts are played at once")
	seed    = flag.Uint64("seed", 1, "the seed of the first random script")
	trials  = flag.Int("trials", 8, "how often a script must show a difference for it to count, if the machine was late")
	shrink  = flag.Bool("shrink", true, "make scripts that show a difference smaller")
	planted = flag.String("planted", "", "plant only the faults with this in their names")
	lasting = flag.Duration("lasting", 0, "for how long more random scripts are played")
)

// comparison has all sides: the kubelet, our engine with the kubelet's compatibility, our engine with its default, and our engine
// used through package kube.
type comparison struct {
	sides   []newSide
	kubelet *kubelet
	engines []*sonde // ours; the first is compared with the kubelet's metrics
	time    *metronome
}

const (
	theKubelet = iota
	compatible
	mended
	byPods
)

func newComparison(t *testing.T) *comparison {
	k, like, own, pods := newKubelet(t), newSonde(t, probe.Kubelet), newSonde(t, probe.Mended), newAdapted(t)
	c := &comparison{
		sides: []newSide{k.newSide, like.newSide, own.newSide, pods.newSide}, kubelet: k,
		engines: []*sonde{like, own, pods.sonde}, time: new(metronome),
	}
	var keeping sync.WaitGroup
	keeping.Go(func() { c.time.keep(t.Context()) })
	t.Cleanup(keeping.Wait)
	time.Sleep(settling) // the kubelet adds a random delay until it is that old; no event reports its age
	return c
}

// differences plays scripts and returns the unexplained differences.
func (c *comparison) differences(t *testing.T, scripts []*Script) []Difference {
	t.Helper()
	var all []Difference
	begin := time.Now()
	defer func() { t.Logf("played %d scripts in %v", len(scripts), time.Since(begin).Round(time.Second)) }()
	late := map[*Script]bool{}
	for i, plays := range playAll(t, scripts, c.sides...) {
		late[scripts[i]] = c.wasLate(plays)
		all = slices.Concat(all, unexplained(scripts[i], plays), c.latenesses(plays))
	}
	all = slices.Concat(all, c.counters(t, scripts))
	for i := range all {
		all[i].ByTime = all[i].ByTime || late[all[i].Script]
	}
	return all
}

// wasLate reports whether the machine was so late during a script that attempts may have had other outcomes.
func (c *comparison) wasLate(plays []*play) bool {
	return slices.ContainsFunc(plays, func(p *play) bool {
		return p.late || len(p.began) > 0 && c.time.worst(p.began[0]) > Tolerance
	})
}

// unexplained compares a script's plays with each other and with the model's.
func unexplained(s *Script, plays []*play) []Difference {
	return slices.Concat(
		between("the kubelet and sonde", compare(plays[theKubelet], plays[compatible])),
		between("the kubelet and sonde by pods", compare(plays[theKubelet], plays[byPods])),
		between("the kubelet and the model", compare(plays[theKubelet], foretell(s, kubeletsAccidents))),
		between("the mended model and sonde", compare(foretell(s, Accidents{}), plays[mended])),
	)
}

// counters compares the metrics of the kubelet and of the engine with its compatibility.
func (c *comparison) counters(t *testing.T, scripts []*Script) (all []Difference) {
	kubelet, err := gather(c.kubelet.metrics)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := gather(c.engines[0].registry())
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range scripts {
		all = append(all, compareMetrics(script, kubelet, ours)...)
	}
	return between("the kubelet and sonde", all)
}

func between(which string, all []Difference) []Difference {
	for i := range all {
		all[i].Field += " between " + which
	}
	return all
}

func (c *comparison) latenesses(plays []*play) []Difference {
	ours, pods := sondeTiming, podTiming
	if c.shed() {
		ours, pods = shedding(ours), shedding(pods)
	}
	return slices.Concat(
		between("the kubelet and its timing", punctual(plays[theKubelet], kubeletTiming, c.time)),
		between("sonde and its timing", punctual(plays[compatible], ours, c.time)),
		between("sonde by pods and its timing", punctual(plays[byPods], pods, c.time)),
		between("sonde by default and its timing", punctual(plays[mended], ours, c.time)),
	)
}

// shed reports whether an engine has skipped attempts because the machine was late.
func (c *comparison) shed() bool {
	return slices.ContainsFunc(c.engines, func(o *sonde) bool {
		st := o.engine.Stats()
		return st.Shed+st.Late > 0
	})
}

// TestRandomScripts plays the scripts of many seeds; in a long run, repeatedly.
func TestRandomScripts(t *testing.T) {
	t.Parallel()
	first, last, unexplained := *seed, *seed, 0
	for end := time.Now().Add(*lasting); ; {
		batch := make([]*Script, *scripts)
		last += uint64(len(batch))
		t.Run(fmt.Sprintf("to %d", last-1), func(t *testing.T) {
			for i := range batch {
				batch[i] = Generate(last - uint64(len(batch)-i))
			}
			unexplained += newComparison(t).hold(t, batch)
		})
		if t.Failed() || !time.Now().Before(end) {
			break
		}
	}
	summarise("%d random scripts (seeds %d to %d): %d unexpected differences", last-first, first, last-1, unexplained)
}

// TestRegressions plays the scripts of testdata: one for each behaviour, and one for each difference that was found.
func TestRegressions(t *testing.T) {
	t.Parallel()
	all := regressions(t)
	unexplained := newComparison(t).hold(t, all)
	summarise("%d regression scripts: %d unexpected differences", len(all), unexplained)
}

func regressions(t *testing.T) (all []*Script) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no regression scripts: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(strings.TrimSuffix(filepath.Base(file), ".txt"), string(text))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// confirmed is the prefix of the report of a difference that counts.
const confirmed = "unexplained: "

// hold plays scripts. A difference fails the test, and its script is reduced. If the machine was late, which may be the cause, the
// script is played again, and the difference counts only if it recurs in each trial, or without that cause. It returns the number
// of differences that count.
func (c *comparison) hold(t *testing.T, scripts []*Script) int {
	t.Helper()
	var counted []Difference
	for n := 1; len(scripts) > 0; n++ {
		var retried []Difference
		for _, d := range c.differences(t, scripts) {
			if d.ByTime && n < *trials {
				t.Logf("trial %d, the machine was late: %v", n, d)
				retried = append(retried, d)
			} else {
				t.Errorf("%s%v\n%v", confirmed, d, d.Script)
				counted = append(counted, d)
			}
		}
		scripts = again(scriptsOf(retried))
	}
	t.Logf("maximum lateness of the machine: %v", c.time.worst(time.Time{}))
	if *shrink {
		guilty := scriptsOf(counted)
		for _, g := range guilty[:min(3, len(guilty))] {
			t.Logf("%s, reduced:\n%v", g.Name, c.shrink(t, g))
		}
	}
	return len(counted)
}

// scriptsOf returns the scripts of differences.
func scriptsOf(all []Difference) []*Script {
	var scripts []*Script
	for _, d := range all {
		if !slices.Contains(scripts, d.Script) {
			scripts = append(scripts, d.Script)
		}
	}
	return scripts
}

// again returns copies of scripts with other names, which identify scripts on the sides.
func again(scripts []*Script) []*Script {
	var all []*Script
	for _, s := range scripts {
		c := s.clone()
		c.Name += "-again"
		all = append(all, c)
	}
	return all
}

// shrink returns a smaller script with a difference. It plays all slightly smaller scripts together.
func (c *comparison) shrink(t *testing.T, guilty *Script) *Script {
	for range 8 {
		found := c.differences(t, smaller(guilty))
		if len(found) == 0 {
			return guilty
		}
		guilty = slices.MinFunc(found, func(a, b Difference) int { return len(a.Script.String()) - len(b.Script.String()) }).Script
	}
	return guilty
}
