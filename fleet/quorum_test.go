package fleet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// network is how engines reach targets.
type network struct {
	networkMu sync.Mutex // guards all below
	random    *rand.Rand
	loss      float64         // share of the attempts that fail
	lossy     string          // the engine whose attempts fail; "" for all
	isCut     map[string]bool // engines that reach no target, and pairs of an engine and a target that it does not reach
}

func newNetwork() *network {
	return &network{random: rand.New(rand.NewPCG(1, 2)), isCut: map[string]bool{}}
}

func (n *network) set(loss float64, cut ...string) {
	n.networkMu.Lock()
	defer n.networkMu.Unlock()
	n.loss, n.lossy, n.isCut = loss, "", map[string]bool{}
	for _, from := range cut {
		n.isCut[from] = true
	}
}

func (n *network) carries(engine, target string) bool {
	n.networkMu.Lock()
	defer n.networkMu.Unlock()
	isLost := (n.lossy == "" || n.lossy == engine) && n.random.Float64() < n.loss
	return !n.isCut[engine] && !n.isCut[engine+" "+target] && !isLost
}

// jury is a fleet of engines that decide all targets together.
type jury struct {
	*testing.T
	net     *network
	world   *world
	backend *coordtest.Local
	rule    quorum.Rule
	backOff restart.BackOff
	members []*member
}

// watched is the number of targets of a jury: every other has a driver and a liveness probe, and all have a readiness
// probe.
const watched = 16

// startJury starts n engines. The rule determines how many of them probe each target.
func startJury(t *testing.T, n int, r quorum.Rule) *jury {
	t.Helper()
	return startPatientJury(t, n, r, restart.BackOff{})
}

// startPatientJury is startJury with a back-off for the targets.
func startPatientJury(t *testing.T, n int, r quorum.Rule, b restart.BackOff) *jury {
	t.Helper()
	j := &jury{T: t, net: newNetwork(), world: newWorld(), backend: coordtest.NewLocal(), rule: r, backOff: b}
	j.launch(n)
	time.Sleep(time.Minute)
	j.forget()
	return j
}

// launch starts n engines, and discards the previous ones.
func (j *jury) launch(n int) {
	j.Helper()
	j.members = nil
	for i := range n {
		name := fmt.Sprint("engine-", i)
		j.members = append(j.members, start(j.T, name, j.backend, j.targets(name)))
	}
}

// targets returns the targets as configured for one engine.
func (j *jury) targets(engine string) fleet.Targets {
	t := fleet.Targets{Probes: probe.Set{}, Units: map[string]restart.Unit{}, Quorums: map[probe.ID]quorum.Rule{}}
	for i := range watched {
		target := fmt.Sprintf("shop/web-%d", i)
		p := probe.Probe{
			Rule: probe.Rule{Period: time.Second, FailureThreshold: 3}, HandlerName: "test", Revision: "1",
			Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
				if j.world.isSick(target) || !j.net.carries(engine, target) {
					return probe.Fail("test.sick", "no answer")
				}
				return probe.Succeed("")
			}),
		}
		ids := []probe.ID{{Target: target, Kind: probe.Readiness}}
		var u restart.Unit
		if i%2 == 0 {
			u = restart.Unit{Driver: driver{world: j.world, target: target}, Revision: "1", BackOff: j.backOff}
			ids = append(ids, probe.ID{Target: target, Kind: probe.Liveness})
		}
		t.Units[target] = u
		for _, id := range ids {
			t.Probes[id], t.Quorums[id] = p, j.rule
		}
	}
	return t
}

func (j *jury) forget() {
	for _, m := range j.members {
		m.forget()
	}
}

// failed returns the probes that engines have published as not passing.
func (j *jury) failed() (all []string) {
	for _, m := range j.members {
		all = append(all, *m.failures.Load()...)
	}
	return all
}

// expectPeace checks that no target was published as failing, and that none was restarted.
func (j *jury) expectPeace(when string) {
	j.Helper()
	if failed := j.failed(); len(failed) > 0 {
		j.Errorf("%s: %d were published as not passing, such as %s", when, len(failed), strings.Join(failed[:min(5, len(failed))], ", "))
	}
	for i := range watched {
		if n := len(j.world.restarts(fmt.Sprintf("shop/web-%d", i))); n > 0 {
			j.Errorf("%s: shop/web-%d was restarted %d times", when, i, n)
		}
	}
}

// count returns the number of the engines' probes with a published verdict, and the number of these whose result
// contains a text.
func (j *jury) count(v probe.Verdict, says string) (verdicts, saying int) {
	for _, m := range j.members {
		for st := range m.engine.All() {
			if st.Verdict == v {
				verdicts++
			}
			if strings.Contains(st.Result.Detail, says) {
				saying++
			}
		}
	}
	return verdicts, saying
}

// A tenth of all attempts is lost: at nearly any time some vantage finds a target failing, but the targets are well.
func TestLostAttemptsChangeNoJointVerdict(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		j := startJury(t, 5, quorum.Rule{Vantages: 5})
		if passing, _ := j.count(probe.Passing, "-"); passing != watched*3/2 {
			t.Fatalf("%d probes pass in the beginning", passing)
		}
		j.net.set(0.1)
		time.Sleep(2 * time.Minute)
		j.expectPeace("a tenth is lost")
		alone := startJury(t, 1, quorum.Rule{Vantages: 2, Min: 1})
		alone.net.set(0.1)
		time.Sleep(8 * time.Minute) // about ten failures are expected

		if len(alone.failed()) == 0 {
			t.Error("one vantage alone sees no target fail: too little is lost for this test")
		}
	})
}

// One vantage is cut off from the targets, and then another one: the others outvote them, and their votes do not count
// once they doubt themselves. Nothing is restarted.
func TestVantagesThatAreCutOffChangeNoJointVerdict(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		j := startJury(t, 5, quorum.Rule{Vantages: 5})
		j.net.set(0, "engine-1")
		time.Sleep(time.Minute)
		for i, m := range j.members {
			if d := m.fleet.Doubt(); d.Doubtful != (i == 1) || d.MayAct == (i == 1) {
				t.Errorf("engine-%d: %+v", i, d)
			}
		}
		j.net.set(0, "engine-1", "engine-2")
		time.Sleep(time.Minute)
		j.expectPeace("two are cut off")
		j.net.set(0)
		time.Sleep(time.Minute)
		j.expectPeace("all are back")
		if _, unanimous := j.count(probe.Passing, "passing at 5 vantages"); unanimous != watched*3/2 || j.gray() != 0 {
			t.Errorf("%d probes say that all agree, and %d are counted as gray", unanimous, j.gray())
		}
	})
}

// One vantage does not reach some targets, too few for it to doubt itself. They are published with the verdict of the
// majority, and with the vantages that differ.
func TestVantagesThatDifferArePublishedAsGray(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		j := startJury(t, 5, quorum.Rule{Vantages: 5})
		j.net.set(0, "engine-1 shop/web-0", "engine-1 shop/web-1", "engine-1 shop/web-2", "engine-1 shop/web-3")
		time.Sleep(time.Minute)
		j.expectPeace("one vantage does not reach four targets")
		const probes = 4 * 3 / 2
		_, saying := j.count(probe.Passing, "failing at 1 of 5 vantages: failing at engine-1; passing at engine-0, engine-2, engine-3, engine-4")
		if saying != probes || j.gray() != probes {
			t.Errorf("%d probes say who differs, and %d are counted as gray", saying, j.gray())
		}
		for _, m := range j.members {
			for st := range m.engine.All() {
				isGray := st.Result.Outcome == probe.Warning && st.Result.Reason == "quorum.gray" && st.Warned
				if isGray != strings.Contains(st.Result.Detail, "failing at engine-1") {
					t.Errorf("%v: %v %s", st.ID, st.Result.Outcome, st.Result.Detail)
				}
			}
		}
		if shown := j.grayOfOthers(); shown != 4*probes {
			t.Errorf("the other engines show %d gray probes, want %d", shown, 4*probes)
		}
		j.net.set(0)
		time.Sleep(time.Minute)
		if shown := j.grayOfOthers(); shown != 0 {
			t.Errorf("the other engines show %d gray probes when all agree again", shown)
		}
	})
}

// grayOfOthers counts the gray probes of other engines that members show.
func (j *jury) grayOfOthers() (n int) {
	for _, m := range j.members {
		for st := range m.fleet.Others().All() {
			if st.Result.Outcome == probe.Warning && st.Result.Reason == "quorum.gray" && st.Warned && strings.Contains(st.Result.Detail, "failing at engine-1;") {
				n++
			}
		}
	}
	return n
}

// Metrics call it at each scrape. Targets of other engines, which are the majority, must cost nothing.
func TestCountingGrayProbesIsAboutOwnedTargetsOnly(t *testing.T) {
	co, err := coord.New(coord.Config{Name: "one", Backend: coordtest.NewLocal()}) // it owns nothing, since it is not running
	if err != nil {
		t.Fatal(err)
	}
	f := fleet.New(fleet.Config{Coordinator: co, Engine: engine.New(engine.Config{})})
	j := &jury{T: t, net: newNetwork(), world: newWorld()}
	if err := f.Apply(j.targets("one")); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10, func() { f.Quorum() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func (j *jury) gray() (n int) {
	for _, m := range j.members {
		n += m.fleet.Quorum().Gray
	}
	return n
}

// Two of five engines are dead. The remaining three detect failing targets, restart each instance once, and find the
// targets well afterwards.
func TestTargetsThatAreDownAreFoundWhileVantagesAreDead(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		j := startJury(t, 5, quorum.Rule{Vantages: 5})
		j.members[1].kill()
		j.members[2].kill()
		j.members = []*member{j.members[0], j.members[3], j.members[4]}
		time.Sleep(time.Minute)
		j.expectPeace("two are dead")
		for i := range watched {
			j.world.infect(fmt.Sprintf("shop/web-%d", i), 100*time.Millisecond)
		}
		time.Sleep(6 * time.Second)
		if failing, _ := j.count(probe.Failing, "-"); failing < watched/2 { // the other targets are being restarted
			t.Errorf("%d probes fail after six seconds", failing)
		}
		time.Sleep(time.Minute)
		for i := range watched {
			target := fmt.Sprintf("shop/web-%d", i)
			if n, want := len(j.world.restarts(target)), (i+1)%2; n != want {
				t.Errorf("%s was restarted %d times, want %d", target, n, want)
			}
			for _, m := range j.members {
				st, ok := m.engine.Status(probe.ID{Target: target, Kind: probe.Readiness})
				if isWell := st.Verdict == probe.Passing; ok && isWell != (i%2 == 0) {
					t.Errorf("%s: %v of %s: %s", target, st.Verdict, st.Instance, st.Result.Detail)
				}
			}
		}
	})
}

// With fewer votes than the rule demands nothing is decided: the published verdict stays, and the probe says why.
func TestTooFewVotesDecideNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := startJury(t, 3, quorum.Rule{Min: 3})
		j.members[1].kill()
		j.members = []*member{j.members[0], j.members[2]}
		time.Sleep(2 * coord.DefaultTTL) // until then its votes count
		for i := range watched {
			j.world.infect(fmt.Sprintf("shop/web-%d", i), 0)
		}
		time.Sleep(time.Minute)
		j.expectPeace("one is dead")
		passing, saying := j.count(probe.Passing, "2 votes count, and 3 are needed")
		if passing != watched*3/2 || saying != watched*3/2 {
			t.Errorf("%d probes pass still, and %d say why", passing, saying)
		}
	})
}

// The verdicts of a drained engine may be based on an old configuration, so that it is not a vantage, whatever the reason
// for the drain. While all engines are drained, all are vantages.
func TestADrainedEngineIsNoVantage(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		j := startJury(t, 3, quorum.Rule{Vantages: 3})
		const all = watched * 3 / 2
		expect := func(when string, polls ...int) {
			t.Helper()
			time.Sleep(30 * time.Second)
			for i, want := range polls {
				if got := j.members[i].fleet.Quorum().Polls; got != want {
					t.Errorf("%s: engine-%d attempts %d probes, want %d", when, i, got, want)
				}
			}
			j.expectPeace(when)
		}
		drain := func(i int) {
			t.Helper()
			if _, err := coord.PutDrain(t.Context(), j.members[i].backend, coord.Drain{Name: fmt.Sprint("engine-", i)}, true); err != nil {
				t.Fatal(err)
			}
		}
		expect("none is drained", all, all, all)
		j.members[1].co.Drain(true)
		expect("one is outdated", all, 0, all)
		j.net.set(0, "engine-1 shop/web-0", "engine-1 shop/web-1", "engine-1 shop/web-2", "engine-1 shop/web-3")
		expect("the one that is outdated sees others", all, 0, all)
		if j.gray() != 0 {
			t.Errorf("%d probes are gray by the votes of an engine that is drained", j.gray())
		}
		j.net.set(0)
		drain(2)
		expect("an operator has drained another one", all, 0, 0)
		drain(0)
		expect("all are drained", all, all, all)
		j.members[1].co.Drain(false)
		expect("one is not drained any more", 0, all, 0)
	})
}

// When all probes of a target get quorums by a reload, this engine counts the target as a vantage, and no longer as one
// that it decides alone.
func TestATargetThatGetsQuorumsIsCountedOnce(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one := start(t, "one", b, w.targets(many))
		counted := func() int { return one.fleet.Engines()["one"].Targets }
		time.Sleep(time.Minute)
		if n := counted(); n != many {
			t.Fatalf("%d targets are counted of %d", n, many)
		}
		targets := w.targets(many)
		targets.Quorums = map[probe.ID]quorum.Rule{}
		for id := range targets.Probes {
			targets.Quorums[id] = quorum.Rule{Min: 1}
		}
		if err := one.fleet.Apply(targets); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := counted(); n != many {
			t.Errorf("%d targets are counted of %d that vantages decide about", n, many)
		}
	})
}
