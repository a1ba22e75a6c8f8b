package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// vantage makes this engine one of the engines that probe targets together. It attempts the probes for which it is
// chosen in a separate engine, of which only the votes are visible: the owner of a target publishes the result of the
// votes.
//
// In that engine each of these probes is a readiness probe, whose verdict may change at any time. A liveness probe that
// has failed once would not be attempted again before a restart, which one vantage alone must not decide. Startup probes
// of the same targets are unchanged, so that the other probes wait for them.
type vantage struct {
	name       string
	engine     *engine.Engine
	votes      *votes
	instanceOf func(target string) string // the instance of a target according to its owner; "" if it is unknown
	log        *slog.Logger
	sparse     *sparselog.Logger
	wake       wake.Signal // shared with votes.rechoose; set when desired, instances or the voting engines have changed

	desiredMu sync.Mutex // guards all below
	desired   map[shard.ID][]poll
	startups  map[string]probe.Set // by target
	instances map[string]string    // by target, as reported to the engine, "" for none: of probed targets that their owners restart
	chosen    int                  // number of probes for which this engine is chosen
}

// poll is a probe with a quorum.
type poll struct {
	id    probe.ID
	probe probe.Probe
	rule  quorum.Rule
}

// A vote expires if the vantage has made no attempt for stalePeriods of the probe's longest period. This is checked
// every staleCheck.
const (
	stalePeriods = 3
	staleCheck   = 5 * time.Second
)

func newVantage(c Config, v *votes, instanceOf func(target string) string) *vantage {
	here := &vantage{
		name: c.Coordinator.Name(), engine: engine.New(c.Vantage), votes: v, instanceOf: instanceOf, log: c.Logger, sparse: sparselog.New(c.Logger), wake: v.rechoose,
		desired: map[shard.ID][]poll{}, startups: map[string]probe.Set{}, instances: map[string]string{},
	}
	v.ballot = here.ballot
	return here
}

// pollOf returns the probe of the vantage's engine that stands for another probe. Its name begins with the kind of that
// probe.
func pollOf(id probe.ID) probe.ID {
	prefix := "r/"
	if id.Kind == probe.Liveness {
		prefix = "l/"
	}
	return probe.ID{Target: id.Target, Kind: probe.Readiness, Name: prefix + id.Name}
}

// apply replaces the probes that vantages attempt by those of targets, which must be valid.
func (v *vantage) apply(t Targets) {
	desired, startups := map[shard.ID][]poll{}, map[string]probe.Set{}
	attempted := func(p probe.Probe, id probe.ID) probe.Probe {
		p.Target.Static = t.Units[id.Target].Driver == nil
		return p
	}
	for id, r := range t.Quorums {
		p := attempted(t.Probes[id], id)
		p.Rule.Kind, p.Rule.TerminationGracePeriod = probe.Readiness, 0
		desired[shard.Of(id.Target)] = append(desired[shard.Of(id.Target)], poll{id, p, r.WithDefaults()})
		startups[id.Target] = probe.Set{}
	}
	for id, p := range t.Probes {
		if startups[id.Target] != nil && id.Kind == probe.Startup {
			startups[id.Target][id] = attempted(p, id)
		}
	}
	v.desiredMu.Lock()
	defer v.desiredMu.Unlock()
	v.desired, v.startups = desired, startups
	v.wake.Set()
}

// polls returns the number of probes that this engine attempts as a vantage.
func (v *vantage) polls() int {
	v.desiredMu.Lock()
	defer v.desiredMu.Unlock()
	return v.chosen
}

// run attempts the probes for which this engine is chosen, and votes, until ctx is done.
func (v *vantage) run(ctx context.Context, doubts *doubts) {
	ctx, end := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer end()                                // also after a panic
	parts.Go(func() { _ = v.engine.Run(ctx) }) // fails only if it is called twice
	parts.Go(func() { v.votes.run(ctx) })
	parts.Go(func() { v.watch(ctx, doubts) })
	stale := time.NewTicker(staleCheck)
	defer stale.Stop()
	for {
		set := v.choose()
		if _, err := v.engine.Apply(set); err != nil {
			v.log.Error("the probes of a vantage cannot be applied", "engine", v.name, "error", err)
		}
		v.report(set)
		v.markAll(set)
		for isSame := true; isSame; {
			select {
			case <-v.wake:
				isSame = false
			case <-stale.C:
				v.markAll(set)
			case <-ctx.Done():
				return
			}
		}
	}
}

// choose returns the probes for which this engine is chosen, together with the startup probes of their targets.
func (v *vantage) choose() probe.Set {
	v.desiredMu.Lock()
	defer v.desiredMu.Unlock()
	set := probe.Set{}
	v.chosen = 0
	for id, polls := range v.desired {
		for _, p := range polls {
			if !slices.Contains(v.votes.choose(id, p.rule), v.name) {
				continue
			}
			v.chosen++
			set[pollOf(p.id)] = p.probe
			for startup, p := range v.startups[p.id.Target] {
				set[startup] = p
			}
		}
	}
	return set
}

// report reports to the vantage's engine the running instances of its targets, according to their owners. An instance
// that is unknown now stays, since its target is moving to another owner.
func (v *vantage) report(set probe.Set) {
	v.desiredMu.Lock()
	before, now := v.instances, map[string]string{}
	for id, p := range set {
		if !p.Target.Static {
			now[id.Target] = cmp.Or(v.instanceOf(id.Target), before[id.Target])
		}
	}
	v.instances = now
	v.desiredMu.Unlock()
	for target, instance := range now {
		if before[target] != instance {
			v.engine.Report(probe.Instance{Target: target, ID: instance, Phase: probe.Running, Since: time.Now()})
		}
	}
	for target, instance := range before {
		if _, isProbed := now[target]; instance != "" && !isProbed {
			v.engine.Report(probe.Instance{Target: target, Phase: probe.Absent})
		}
	}
}

// noteInstance triggers a report if the instance of a target has changed.
func (v *vantage) noteInstance(target string) {
	v.desiredMu.Lock()
	defer v.desiredMu.Unlock()
	if before, isProbed := v.instances[target]; isProbed && cmp.Or(v.instanceOf(target), before) != before {
		v.wake.Set()
	}
}

// markAll marks the ballots about all targets of a set to be compared with the store.
func (v *vantage) markAll(set probe.Set) {
	targets := []string{""}
	for id := range set {
		targets = append(targets, id.Target)
	}
	v.votes.mark(targets...)
}

// watch votes whenever the vantage's engine decides a probe, until ctx is done.
func (v *vantage) watch(ctx context.Context, doubts *doubts) {
	sub := v.engine.SubscribeMemories() // not Subscribe: a first verdict may equal the initial one
	defer sub.Close()
	isPoll := func(id probe.ID) bool { return id.Kind == probe.Readiness }
	for st, err := sub.Next(ctx); err == nil; st, err = sub.Next(ctx) {
		v.votes.mark(st.ID.Target)
		doubts.polled(st.ID.Target, verdictOf(v.engine, st.ID.Target, isPoll))
	}
}

// ballot returns the current ballot of this engine about a target, or nil for none.
func (v *vantage) ballot(target string, lease coord.Lease) []byte {
	st, _ := v.engine.Target(target)
	b, now := ballot{Lease: lease}, time.Now()
	for i := range st.Probes {
		p := &st.Probes[i]
		if p.ID.Kind != probe.Readiness {
			continue
		}
		if len(b.Votes) == 0 {
			b.Instance = p.Instance
		}
		said := vote{Poll: p.ID.Name}
		if p.Decided && p.Instance == b.Instance && !isStale(p, now) {
			said.Verdict = p.Verdict
			if p.Tried == probe.Success || p.Tried == probe.Failure && p.Verdict == probe.Failing {
				said.Of = p.Definition
			}
		}
		b.Votes = append(b.Votes, said)
	}
	if len(b.Votes) == 0 {
		return nil
	}
	value, _ := json.Marshal(b) // cannot fail: JSON can encode all of it
	if len(value) > maxBallot { // the instance name is too long
		v.sparse.Error("a ballot is too long, and not put", "engine", v.name, "target", target, "bytes", len(value), "at_most", maxBallot)
		return nil
	}
	return value
}

// isStale reports whether a verdict has expired, since no attempt has finished for too long.
func isStale(st *engine.Status, now time.Time) bool {
	_, longest := st.Rule.Periods()
	return !st.ResultAt.IsZero() && now.Sub(st.ResultAt) > stalePeriods*(longest+st.Rule.Timeout)
}
