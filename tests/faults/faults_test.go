//go:build linux

package faults

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/tier"
)

// brief are the faults that are also injected in .ci/run.
var brief = []string{"stopped", "starved", "descriptors", "packets dropped"}

func TestAFaultOfTheProberChangesNoVerdict(t *testing.T) {
	tier.CI(t)
	if !faulttest.InNamespaces(t) {
		return
	}
	w := newWorld(t)
	sonde, plugin := program.Build(t, program.Sonde), program.Plugin(t, "redis")
	var rows []row
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			if !slices.Contains(brief, f.name) {
				tier.Long(t)
			}
			rows = append(rows, w.start(t, sonde, plugin, f).survive(t, f))
		})
	}
	if tier.IsLong() {
		printTable(rows)
	}
}

// row is the outcome of one fault, for healthy targets and those that really failed.
type row struct {
	fault        string
	targets      int
	attempts     uint64
	unknown      uint64 // attempts
	changed      uint64 // verdicts
	restarts     int32
	haproxy      string // changed verdicts
	usual, found time.Duration
}

func printTable(rows []row) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fault\ttargets\tattempts\tunknown\tverdicts changed\trestarts\tchanged by HAProxy\treal failure, usually\tduring or after the fault")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%.1fs\t%.1fs\n",
			r.fault, r.targets, r.attempts, r.unknown, r.changed, r.restarts, r.haproxy, r.usual.Seconds(), r.found.Seconds())
	}
	w.Flush()
}

// survive injects a fault, and real failures into one target of each handler. Only the verdicts of those targets may change, and
// only their instances may be restarted.
func (p *prober) survive(t *testing.T, f fault) row {
	before := p.read(t)
	r := row{fault: f.name, usual: p.failReally(t, p.targetsFor(brokenBefore), "break")}
	times := tier.Pick(1, 1, max(1, f.times))
	for i := range times {
		found := p.endure(t, f, i == times-1)
		r.found = max(r.found, found)
		p.settle(t)
	}
	after := p.read(t)
	if f.felt != nil {
		if err := f.felt(before, after); err != nil {
			t.Error("the fault was not felt: ", err)
		}
	}
	r.haproxy = p.haproxyChanges(t)
	p.compare(t, before, after, &r)
	if limit := 2 * r.usual; tier.IsLong() && r.found > limit {
		t.Errorf("real failures were published after %v, want at most %v, twice the usual time", r.found, limit)
	}
	t.Logf("%+v", r)
	return r
}

// endure injects a fault and heals it. If fails is true, targets really fail meanwhile, and endure returns how long after that, or
// after the prober could see again, the failures were published. How soon a starved prober publishes depends on the other load of
// this machine: only the long form, on a quiet machine, requires that it does so before it is healed.
func (p *prober) endure(t *testing.T, f fault, fails bool) (found time.Duration) {
	t.Helper()
	heal := sync.OnceFunc(f.inject(t, p))
	defer heal()
	start := time.Now()
	var awaited []target // targets that fail, and may be published after the fault
	if fails {
		during := p.targetsFor(brokenDuring, f.hides...)
		if f.blind || !tier.IsLong() {
			p.breakAll(t, during, "break")
			awaited = during
		} else {
			found = p.failReally(t, during, "break")
		}
	}
	if fails && f.hangs { // other handlers use goroutines: a stall takes time from their attempts
		hung := p.targetsFor(hungDuring, "name", "redis", "exec")
		if tier.IsLong() {
			p.failReally(t, hung, "hang")
		} else {
			p.breakAll(t, hung, "hang")
			awaited = append(awaited, hung...)
		}
	}
	time.Sleep(max(0, f.lasts-time.Since(start))) // the fault continues in real time
	heal()
	if len(awaited) > 0 {
		found = p.waitForFailures(t, awaited)
	}
	return found
}

// compare counts the changes of healthy targets, and reports some of them.
func (p *prober) compare(t *testing.T, before, after reading, r *row) {
	t.Helper()
	for _, tg := range p.targets {
		if !tg.isHealthy() {
			continue
		}
		was, is := before.targets[tg.name], after.targets[tg.name]
		r.targets++
		r.unknown += is.unknown - was.unknown
		r.attempts += is.attempts - was.attempts + is.unknown - was.unknown
		r.restarts += is.restarts - was.restarts
		changes := is.changes - was.changes
		if r.changed += changes; changes > 0 && r.changed <= 20 || is.restarts > was.restarts {
			t.Errorf("%s is healthy, and its verdict or instance has changed %d times, with %d restarts; it is %v: %s\n%s",
				tg.name, changes, is.restarts-was.restarts, is.verdict, is.result, p.whyFailed(tg))
		}
	}
	if r.changed > 0 {
		t.Errorf("%d verdicts of healthy targets have changed", r.changed)
	}
}

// targetsFor returns the targets with a role, except those of hidden handlers.
func (p *prober) targetsFor(r role, hidden ...string) (all []target) {
	for _, tg := range p.targets {
		if tg.role() == r && !slices.Contains(hidden, tg.handler) {
			all = append(all, tg)
		}
	}
	return all
}

// failReally breaks targets, and returns how long it took until all of them were published as failing.
func (p *prober) failReally(t *testing.T, targets []target, verb string) time.Duration {
	t.Helper()
	p.breakAll(t, targets, verb)
	return p.waitForFailures(t, targets)
}

func (p *prober) breakAll(t *testing.T, targets []target, verb string) {
	t.Helper()
	for _, tg := range targets {
		p.breakTarget(t, tg, verb)
	}
}

func (p *prober) waitForFailures(t *testing.T, targets []target) time.Duration {
	t.Helper()
	return p.waitFor(t, "real failures to be published", func(_ target, s state) bool { return s.verdict == probe.Failing }, targets...)
}

// settle waits until each healthy target has had two more attempts.
func (p *prober) settle(t *testing.T) {
	t.Helper()
	before, err := p.state(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.waitFor(t, "further attempts", func(tg target, s state) bool {
		return !tg.isHealthy() || s.attempts >= before[tg.name].attempts+2
	})
}
