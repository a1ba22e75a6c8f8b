package fleet_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

var runs = tier.Flag("runs", 1, 2, 60, "runs of random faults")

// planted is the maximum number of runs without a safeguard until one fails.
const planted = 60

// safeguards are the safeguards against stale acts that are in force.
type safeguards struct {
	deadline bool // engines stop acting by their own clock before their leases can have expired
	guard    bool // writes of an owner require that it still is the owner
	evidence bool // a joint failure restarts only if present votes decide it
}

// faulty is the coord.Backend of one engine. It has latency, and can be cut off or paused together with that engine.
type faulty struct {
	cutOff
	with     safeguards
	random   *dice
	clock    bool          // the clock runs while the engine is paused; otherwise the machine is suspended
	ttl      time.Duration // of the membership's lease, as requested by the engine
	lease    atomic.Int64  // of the membership
	marks    atomic.Int64  // the lease of the loaded marks; 0 before the first
	pausesMu sync.Mutex    // guards the fields below
	paused   chan struct{} // closed when the pause is over; nil without a pause
}

// dice is a random source for multiple goroutines.
type dice struct {
	isCalm atomic.Bool // no engine is paused any more

	diceMu sync.Mutex // guards all below
	r      *rand.Rand
}

func (d *dice) upTo(limit time.Duration) time.Duration {
	d.diceMu.Lock()
	defer d.diceMu.Unlock()
	return time.Duration(d.r.Int64N(int64(limit)))
}

// in returns true once in n times on average.
func (d *dice) in(n int64) bool { return d.upTo(time.Duration(n)) == 0 }

// pause pauses the engine for a time, unless it is already paused.
func (f *faulty) pause(d time.Duration) {
	f.pausesMu.Lock()
	defer f.pausesMu.Unlock()
	if f.paused != nil || f.random.isCalm.Load() {
		return
	}
	over := make(chan struct{})
	f.paused = over
	time.AfterFunc(d, func() {
		f.pausesMu.Lock()
		defer f.pausesMu.Unlock()
		f.paused = nil
		close(over)
	})
}

// wait returns after some latency, and not while the engine is paused. It ignores the caller's deadline, like a process
// that was stopped.
func (f *faulty) wait() {
	time.Sleep(f.random.upTo(30 * time.Millisecond))
	for {
		f.pausesMu.Lock()
		paused := f.paused
		f.pausesMu.Unlock()
		if paused == nil {
			return
		}
		<-paused
		time.Sleep(f.random.upTo(30 * time.Millisecond)) // random, so that paused calls continue in any order
	}
}

// waitAfter is wait after an operation of the store. A suspension of the machine is assumed to begin before the
// operation, since no engine could stop a driver that begins at the same moment.
func (f *faulty) waitAfter() {
	if f.clock || !f.with.deadline {
		f.wait()
	}
}

func (f *faulty) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	f.wait()
	defer f.waitAfter()
	if ttl != f.ttl {
		l, err := f.cutOff.Grant(ctx, ttl)
		f.marks.Store(int64(l))
		return l, err
	}
	l, err := f.cutOff.Grant(ctx, coord.DefaultTTL)
	f.lease.Store(int64(l))
	return l, err
}

// endMarks ends the lease of the loaded marks, as if the store had lost it.
func (f *faulty) endMarks(t *testing.T) {
	if err := f.Backend.Revoke(t.Context(), coord.Lease(f.marks.Load())); err != nil {
		t.Error(err)
	}
}

// keepAlive renews the lease of an engine without a clock, which believes that its lease lasts for an hour.
func (f *faulty) keepAlive(ctx context.Context) {
	for ctx.Err() == nil {
		f.wait()
		_ = f.cutOff.KeepAlive(ctx, coord.Lease(f.lease.Load()))
		select {
		case <-time.After(coord.DefaultTTL / 4):
		case <-ctx.Done():
		}
	}
}

func (f *faulty) KeepAlive(ctx context.Context, l coord.Lease) error {
	f.wait()
	defer f.waitAfter()
	return f.cutOff.KeepAlive(ctx, l)
}

func (f *faulty) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	isAct := strings.HasPrefix(all[0].Then[0].Key, "act/")
	if isAct && f.random.in(12) {
		f.pause(f.random.upTo(20 * time.Second))
	}
	f.wait()
	if !f.with.guard && !strings.HasPrefix(all[0].Then[0].Key, "fleet/") {
		all = slices.Clone(all)
		for i := range all {
			all[i].If = nil
		}
	}
	made, err := f.cutOff.Commit(ctx, all...)
	if isAct && (f.clock || !f.with.deadline) && f.random.in(12) {
		f.pause(f.random.upTo(20 * time.Second))
	}
	f.waitAfter()
	return made, err
}

func (f *faulty) Get(ctx context.Context, key string) (coord.Entry, error) {
	f.wait()
	defer f.waitAfter()
	return f.cutOff.Get(ctx, key)
}

func (f *faulty) RangeAll(ctx context.Context, prefixes ...string) ([][]coord.Entry, error) {
	f.wait()
	defer f.waitAfter()
	return f.cutOff.RangeAll(ctx, prefixes...)
}

func (f *faulty) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	f.wait()
	defer f.waitAfter()
	return f.cutOff.Range(ctx, prefix)
}

func (f *faulty) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	return func(yield func([]coord.Event, error) bool) {
		for events, err := range f.cutOff.Watch(ctx, prefix, after) {
			f.wait()
			if !yield(events, err) {
				return
			}
		}
	}
}

// observer records forbidden requests of engines to terminate instances.
type observer struct {
	*world
	backend *coordtest.Local
	votes   bool       // the engines decide all targets together
	isAging bool       // all engines are stopped for a time, repeatedly
	wrongMu sync.Mutex // guards wrong
	wrong   []string
}

// observe is called when an engine requests the termination of an instance.
func (o *observer) observe(engine, target, id string) {
	e, err := o.backend.Get(context.Background(), "fleet/shard/"+shard.Of(target).String())
	_, ended := o.counts(id)
	o.wrongMu.Lock()
	defer o.wrongMu.Unlock()
	if owner, _, _ := strings.Cut(string(e.Value), "/"); owner != engine || err != nil {
		o.wrong = append(o.wrong, fmt.Sprintf("%s asked for the end of %s, whose owner is %q", engine, id, owner))
	}
	if well := o.wellFor(target, id); (o.votes || o.isAging) && well > latestAct {
		o.wrong = append(o.wrong, fmt.Sprintf("%s asked for the end of %s, which has been well for %v", engine, id, well))
	}
	if ended > 0 {
		o.wrong = append(o.wrong, fmt.Sprintf("%s asked for the end of %s, which had been restarted", engine, id))
	}
}

const sickest = 24 // number of targets in a run

// maxLag bounds how long an instance of a target takes to terminate. For every other target with a driver it is longer
// than the grace period and the lease.
func maxLag(target int) time.Duration {
	if target%4 == 0 {
		return 20 * time.Second
	}
	return 2 * time.Second
}

// runFaults runs three engines with random faults while targets fail, and returns the violations that an observer of the
// drivers has recorded.
func runFaults(t *testing.T, seed uint64, with safeguards) []string {
	random := &dice{r: rand.New(rand.NewPCG(seed, 1))}
	o := &observer{world: newWorld(), backend: coordtest.NewLocal()}
	n := 0
	launch := func() *member {
		n++
		return o.start(t, fmt.Sprintf("engine-%d", n), random, with, with.deadline && random.in(2))
	}
	engines := []*member{launch(), launch(), launch()}
	time.Sleep(20 * time.Second)
	for range 12 {
		for range 1 + random.upTo(4) {
			n := 2 * random.upTo(sickest/2)
			o.infect(fmt.Sprintf("shop/web-%d", n), random.upTo(maxLag(int(n))))
		}
		time.Sleep(random.upTo(6 * time.Second))
		at := int(random.upTo(3))
		switch victim := engines[at]; random.upTo(5) {
		case 0:
			victim.faults.pause(random.upTo(20 * time.Second))
		case 1:
			if victim.faults.clock {
				victim.backend.isCut.Store(true)
				time.AfterFunc(random.upTo(20*time.Second), func() { victim.backend.isCut.Store(false) })
			}
		case 2:
			victim.kill()
			engines[at] = launch()
		case 3:
			victim.faults.endMarks(t)
		}
	}
	random.isCalm.Store(true)
	time.Sleep(30 * time.Second)
	for _, m := range engines {
		if !m.faults.clock { // it may wait for an hour, as long as it believes its lease to last
			m.kill()
		}
	}
	o.start(t, "last", random, with, true)
	time.Sleep(3 * time.Minute)
	o.wrongMu.Lock()
	defer o.wrongMu.Unlock()
	for _, id := range o.overlapping() {
		o.wrong = append(o.wrong, id+" was restarted by two engines at the same time")
	}
	for i := 0; i < sickest; i += 2 {
		if in := o.running(fmt.Sprintf("shop/web-%d", i)); o.isSick(fmt.Sprintf("shop/web-%d", i)) {
			e, _ := o.backend.Get(context.Background(), "fleet/shard/"+shard.Of(fmt.Sprintf("shop/web-%d", i)).String())
			o.wrong = append(o.wrong, fmt.Sprintf("%s was not restarted by %q", in.id, e.Value))
		}
	}
	return o.wrong
}

// start starts an engine that has faults.
func (o *observer) start(t *testing.T, name string, random *dice, with safeguards, clock bool) *member {
	f := &faulty{with: with, random: random, clock: clock}
	f.Backend = o.backend
	c := coord.Config{Name: name, Backend: f, TTL: coord.DefaultTTL, MaxAge: store.DefaultMaxAge}
	if !f.clock {
		c.TTL = time.Hour
	}
	f.ttl = c.TTL
	targets := o.targets(sickest)
	for id, p := range targets.Probes {
		if o.isAging { // loaded verdicts stay for some time before the first attempt
			p.Rule.Period = 30 * time.Second
			targets.Probes[id] = p
		}
	}
	if o.votes {
		targets.Quorums = map[probe.ID]quorum.Rule{}
		for id := range targets.Probes {
			targets.Quorums[id] = quorum.Rule{}
		}
	}
	for target, u := range targets.Units {
		if d, ok := u.Driver.(driver); ok {
			u.BackOff = restart.BackOff{Initial: time.Second, Max: 5 * time.Second}
			if o.isAging {
				u.BackOff = late
			}
			u.TerminationGracePeriod = time.Second
			d.asks = func(id string) { o.observe(name, target, id) }
			u.Driver = d
			var n int
			if _, err := fmt.Sscanf(target, "shop/web-%d", &n); err != nil {
				t.Fatal(err)
			}
			if n%4 == 0 && f.clock && !o.votes && !o.isAging { // the driver of a suspended machine continues when it is resumed
				u.Driver = lasting{d, func() bool { return random.in(4) }}
			}
			targets.Units[target] = u
		}
	}
	m := startWith(t, c, &f.cutOff, targets)
	m.faults = f
	m.ignoresEvidence.Store(!with.evidence)
	if !f.clock {
		ctx, stop := context.WithCancel(context.Background())
		var keeping sync.WaitGroup
		keeping.Go(func() { f.keepAlive(ctx) })
		end := m.stop
		m.stop = func() { stop(); keeping.Wait(); end() }
	}
	return m
}

func TestRandomFaultsLeadToNoStaleAct(t *testing.T) {
	tier.Slow(t)
	for seed := range uint64(runs()) {
		var wrong []string
		synctest.Test(t, func(t *testing.T) {
			wrong = runFaults(t, seed, safeguards{deadline: true, guard: true, evidence: true})
		})
		if len(wrong) > 0 {
			t.Errorf("seed %d:\n%s", seed, strings.Join(wrong, "\n"))
		}
	}
}

// Without one of the safeguards the same runs must fail.
func TestRandomFaultsLeadToStaleActsWithoutASafeguard(t *testing.T) {
	tier.CI(t)
	for name, with := range map[string]safeguards{"no deadline": {guard: true, evidence: true}, "no guard": {deadline: true, evidence: true}} {
		t.Run(name, func(t *testing.T) {
			if with.deadline {
				tier.Long(t) // it takes many runs until one fails
			}
			for seed := range uint64(planted) {
				var wrong []string
				synctest.Test(t, func(t *testing.T) { wrong = runFaults(t, seed, with) })
				if slices.ContainsFunc(wrong, func(text string) bool { return strings.Contains(text, " asked for the end of ") }) {
					t.Logf("seed %d: %s", seed, strings.Join(wrong, "\n"))
					return
				}
			}
			t.Error("no run shows that the safeguard is needed")
		})
	}
}

// latestAct is how long after the recovery of a target an engine may still terminate its instance: until the vantages
// have attempted it, and the votes of paused ones have expired.
const latestAct = 2 * coord.DefaultTTL

// runVotes runs three engines that decide together, with random faults of each and of the store, while targets fail, are
// restarted, wait for back-offs and recover. It returns the violations that an observer of the drivers has recorded.
func runVotes(t *testing.T, seed uint64, with safeguards) []string {
	random := &dice{r: rand.New(rand.NewPCG(seed, 2))}
	o := &observer{world: newWorld(), backend: coordtest.NewLocal(), votes: true}
	n := 0
	launch := func() *member {
		n++
		return o.start(t, fmt.Sprintf("engine-%d", n), random, with, true)
	}
	engines := []*member{launch(), launch(), launch()}
	cut := func(some ...*member) {
		for _, m := range some {
			m.backend.isCut.Store(true)
			time.AfterFunc(random.upTo(20*time.Second), func() { m.backend.isCut.Store(false) })
		}
	}
	time.Sleep(20 * time.Second)
	for range tier.Pick(4, 4, 8) {
		for range 2 + random.upTo(4) {
			o.cripple(fmt.Sprintf("shop/web-%d", 2*random.upTo(sickest/2)), random.upTo(time.Second))
		}
		time.Sleep(5*time.Second + random.upTo(5*time.Second))
		at := int(random.upTo(3))
		switch victim := engines[at]; random.upTo(5) {
		case 0:
			victim.faults.pause(random.upTo(20 * time.Second))
		case 1:
			cut(victim)
		case 2:
			victim.kill()
			engines[at] = launch()
		case 3:
			cut(engines...)
		case 4:
			victim.faults.endMarks(t)
		}
		time.Sleep(random.upTo(6 * time.Second))
		o.healAll()
		time.Sleep(20 * time.Second)
	}
	random.isCalm.Store(true)
	time.Sleep(30 * time.Second)
	for i := 0; i < sickest; i += 4 {
		o.infect(fmt.Sprintf("shop/web-%d", i), time.Second)
	}
	time.Sleep(time.Minute)
	o.wrongMu.Lock()
	defer o.wrongMu.Unlock()
	for i := range sickest {
		if target := fmt.Sprintf("shop/web-%d", i); o.isSick(target) {
			o.wrong = append(o.wrong, o.running(target).id+" was not restarted")
		}
	}
	for _, m := range engines {
		for st := range m.engine.All() {
			if st.Verdict != probe.Passing || st.Result.Outcome != probe.Success {
				o.wrong = append(o.wrong, fmt.Sprintf("in the end %v is %v of %s: %s", st.ID, st.Verdict, st.Instance, st.Result.Detail))
			}
		}
	}
	return o.wrong
}

// Vantages are paused, cut off and killed at random, owners change, and the store is unreachable at times. A target that
// has recovered is not restarted because its published failure has not changed yet, targets that fail at the end are
// restarted, and at the end all verdicts are published as the vantages see them.
func TestRandomFaultsLeadToNoRestartByOldVotes(t *testing.T) {
	tier.CI(t)
	n := max(1, runs()/3)
	for seed := range uint64(n) {
		var wrong []string
		synctest.Test(t, func(t *testing.T) { wrong = runVotes(t, seed, safeguards{deadline: true, guard: true, evidence: true}) })
		if len(wrong) > 0 {
			t.Errorf("seed %d:\n%s", seed, strings.Join(wrong, "\n"))
		}
	}
}

// If published failures without evidence restart targets, the same runs must fail.
func TestRandomFaultsLeadToRestartsByOldVotesWithoutEvidence(t *testing.T) {
	tier.Long(t)
	for seed := range uint64(planted) {
		var wrong []string
		synctest.Test(t, func(t *testing.T) { wrong = runVotes(t, seed, safeguards{deadline: true, guard: true}) })
		if slices.ContainsFunc(wrong, func(text string) bool { return strings.Contains(text, "has been well for") }) {
			t.Logf("seed %d: %s", seed, strings.Join(wrong, "\n"))
			return
		}
	}
	t.Error("no run shows that the safeguard is needed")
}

// runAges runs three engines while targets fail and wait for their back-offs. Repeatedly, all engines are stopped or
// killed, people repair the targets, and after about the age at which memories are no longer recent other engines start,
// which have random faults while they load. It returns the violations that an observer of the drivers has recorded.
func runAges(t *testing.T, seed uint64) []string {
	random := &dice{r: rand.New(rand.NewPCG(seed, 3))}
	o := &observer{world: newWorld(), backend: coordtest.NewLocal(), isAging: true}
	n := 0
	launch := func() *member {
		n++
		return o.start(t, fmt.Sprintf("engine-%d", n), random, safeguards{deadline: true, guard: true, evidence: true}, true)
	}
	engines := []*member{launch(), launch(), launch()}
	time.Sleep(30 * time.Second)
	for range tier.Pick(2, 2, 4) {
		for i := 0; i < sickest; i += 2 {
			o.cripple(fmt.Sprintf("shop/web-%d", i), random.upTo(time.Second))
		}
		time.Sleep(3*time.Minute + random.upTo(time.Minute))
		for _, m := range engines {
			if random.in(2) {
				m.kill()
			} else {
				m.stop()
			}
		}
		o.healAll()
		time.Sleep(latestAct + random.upTo(store.DefaultMaxAge*3/2))
		for i := range engines {
			engines[i] = launch()
			time.Sleep(random.upTo(6 * time.Second)) // about as long as the first engine needs to load
			switch victim := engines[i]; random.upTo(3) {
			case 0:
				victim.faults.pause(random.upTo(20 * time.Second))
			case 1:
				victim.backend.isCut.Store(true)
				time.AfterFunc(random.upTo(20*time.Second), func() { victim.backend.isCut.Store(false) })
			case 2:
				victim.faults.endMarks(t)
			}
		}
		time.Sleep(time.Minute)
	}
	random.isCalm.Store(true)
	for i := 0; i < sickest; i += 4 {
		o.infect(fmt.Sprintf("shop/web-%d", i), time.Second)
	}
	time.Sleep(2 * late.Max)
	o.wrongMu.Lock()
	defer o.wrongMu.Unlock()
	for i := range sickest {
		if target := fmt.Sprintf("shop/web-%d", i); o.isSick(target) {
			o.wrong = append(o.wrong, o.running(target).id+" was not restarted")
		}
	}
	return o.wrong
}

// Targets that fail while all engines are stopped, and are repaired meanwhile, are not restarted when engines start
// again, whatever faults occur then.
func TestRandomFaultsAfterAStopLeadToNoRestartByOldMemories(t *testing.T) {
	tier.CI(t)
	n := max(1, runs()/3)
	for seed := range uint64(n) {
		var wrong []string
		synctest.Test(t, func(t *testing.T) { wrong = runAges(t, seed) })
		if len(wrong) > 0 {
			t.Errorf("seed %d:\n%s", seed, strings.Join(wrong, "\n"))
		}
	}
}
