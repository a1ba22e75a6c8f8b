package fleet

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/fleet/vote"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// vantage makes this engine one of those that probe targets together. It attempts the probes for which it is
// chosen in an engine of their own, of which only its votes are seen: what the owner of a target publishes is what
// the votes add up to.
//
// There each of these probes is a readiness probe, whose verdict may change at any time: a liveness probe that has
// failed once would not be attempted again before a restart, which is not for one vantage to decide. Startup probes
// of the same targets are as they are, so that the others wait for them.
type vantage struct {
	name   string
	engine *engine.Engine
	voter  *vote.Voter
	log    *slog.Logger
	wake   wake.Signal  // desired or instances were changed
	count  atomic.Int64 // polls of which this engine is a vantage

	desiredMu sync.Mutex // guards all below
	desired   map[shard.ID][]poll
	startups  map[string]probe.Set // by target
	instances map[string]string    // by target, as its owner knows it; of targets whose restarts are observed
	observes  bool                 // there are such targets

	voteMu sync.Mutex // held while one of the votes is brought up to date

	reported map[string]string // instances that the engine knows; run's own
}

// poll is a probe with a quorum.
type poll struct {
	id    probe.ID
	probe probe.Probe
	rule  quorum.Rule
}

// What a vantage has not attempted for so many of its longest periods is not known any more. That is looked at every
// staleCheck.
const (
	stalePeriods = 3
	staleCheck   = 5 * time.Second
)

func newVantage(c Config, voter *vote.Voter) *vantage {
	return &vantage{
		name: c.Coordinator.Name(), engine: engine.New(c.Vantage), voter: voter, log: c.Logger, wake: wake.New(),
		desired: map[shard.ID][]poll{}, startups: map[string]probe.Set{}, instances: map[string]string{}, reported: map[string]string{},
	}
}

// pollPrefixes begin the names of polls.
var pollPrefixes = map[probe.Kind]string{probe.Readiness: "r/", probe.Liveness: "l/"}

// pollOf returns the probe of the vantage's engine that attempts another one.
func pollOf(id probe.ID) probe.ID {
	return probe.ID{Target: id.Target, Kind: probe.Readiness, Name: pollPrefixes[id.Kind] + id.Name}
}

// votedOn returns the probe of which pollOf returns the poll.
func votedOn(poll probe.ID) (id probe.ID, ok bool) {
	for kind, prefix := range pollPrefixes {
		if name, isOfKind := strings.CutPrefix(poll.Name, prefix); isOfKind && poll.Kind == probe.Readiness {
			return probe.ID{Target: poll.Target, Kind: kind, Name: name}, true
		}
	}
	return id, false
}

// apply replaces the probes that vantages attempt, by those of targets that were checked.
func (v *vantage) apply(t Targets) {
	desired, startups, observes := map[shard.ID][]poll{}, map[string]probe.Set{}, false
	attempted := func(p probe.Probe, id probe.ID) probe.Probe {
		p.Target.Static = t.Units[id.Target].Driver == nil
		return p
	}
	for id, r := range t.Quorums {
		p := attempted(t.Probes[id], id)
		p.Rule.Kind, p.Rule.TerminationGracePeriod = probe.Readiness, 0
		desired[shard.Of(id.Target)] = append(desired[shard.Of(id.Target)], poll{id, p, r.WithDefaults()})
		startups[id.Target] = probe.Set{}
		observes = observes || !p.Target.Static
	}
	for id, p := range t.Probes {
		if startups[id.Target] != nil && id.Kind == probe.Startup {
			startups[id.Target][id] = attempted(p, id)
		}
	}
	v.desiredMu.Lock()
	defer v.desiredMu.Unlock()
	v.desired, v.startups, v.observes = desired, startups, observes
	v.wake.Set()
}

// polls returns how many probes this engine attempts as a vantage.
func (v *vantage) polls() int { return int(v.count.Load()) }

// run attempts the probes for which this engine is chosen, and votes, until ctx is done.
func (v *vantage) run(ctx context.Context, doubts *doubts) {
	ctx, end := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer end()                                // also after a panic
	parts.Go(func() { _ = v.engine.Run(ctx) }) // its only error is a second call
	parts.Go(func() { v.watch(ctx, doubts) })
	parts.Go(func() { v.voteOften(ctx) })
	isFollowing := false
	for {
		if !isFollowing && v.observesRestarts() {
			isFollowing = true
			parts.Go(func() { v.voter.Follow(ctx, v.follow) })
		}
		live, changed := v.voter.Vantages()
		set := v.choose(live)
		if _, err := v.engine.Apply(set); err != nil {
			v.log.Error("the probes of a vantage cannot be applied", "engine", v.name, "error", err)
		}
		v.report(set)
		select {
		case <-changed:
		case <-v.wake:
		case <-ctx.Done():
			return
		}
	}
}

// observesRestarts reports whether instances of some targets have to be learned from their owners.
func (v *vantage) observesRestarts() bool {
	v.desiredMu.Lock()
	defer v.desiredMu.Unlock()
	return v.observes
}

// choose returns the probes for which this engine is chosen from those that live, with the startup probes of their
// targets.
func (v *vantage) choose(live []quorum.Vantage) probe.Set {
	v.desiredMu.Lock()
	defer v.desiredMu.Unlock()
	set := probe.Set{}
	n := int64(0)
	for id, polls := range v.desired {
		chosen := map[quorum.Rule]bool{}
		for _, p := range polls {
			isChosen, known := chosen[p.rule]
			if !known {
				isChosen = slices.Contains(quorum.Choose(id, p.rule, live), v.name)
				chosen[p.rule] = isChosen
			}
			if !isChosen {
				continue
			}
			n++
			set[pollOf(p.id)] = p.probe
			for startup, p := range v.startups[p.id.Target] {
				set[startup] = p
			}
		}
	}
	v.count.Store(n)
	return set
}

// follow takes a joint verdict, which names the instance that its target's owner knows.
func (v *vantage) follow(id probe.ID, j vote.Joint) {
	v.desiredMu.Lock()
	defer v.desiredMu.Unlock()
	if _, hasPolls := v.startups[id.Target]; !hasPolls || j.Instance == probe.StaticID {
		delete(v.instances, id.Target)
		return
	}
	if j.Instance != "" && v.instances[id.Target] != j.Instance {
		v.instances[id.Target] = j.Instance
		v.wake.Set()
	}
}

// report tells the vantage's engine which instances run of the targets that it probes.
func (v *vantage) report(set probe.Set) {
	v.desiredMu.Lock()
	now := map[string]string{}
	for id, p := range set {
		if instance := v.instances[id.Target]; instance != "" && !p.Target.Static {
			now[id.Target] = instance
		}
	}
	v.desiredMu.Unlock()
	for target, instance := range now {
		if v.reported[target] != instance {
			v.engine.Report(probe.Instance{Target: target, ID: instance, Phase: probe.Running, Since: time.Now()})
		}
	}
	for target := range v.reported {
		if now[target] == "" {
			v.engine.Report(probe.Instance{Target: target, Phase: probe.Absent})
		}
	}
	v.reported = now
}

// watch votes whenever the vantage's engine has decided something, until ctx is done.
func (v *vantage) watch(ctx context.Context, doubts *doubts) {
	sub := v.engine.SubscribeMemories() // a first verdict may be the initial one
	defer sub.Close()
	for {
		st, err := sub.Next(ctx)
		if err != nil {
			return
		}
		v.vote(st.ID)
		doubts.polled(st.ID.Target, verdictOf(v.engine, st.ID.Target, func(id probe.ID) bool { _, ok := votedOn(id); return ok }))
	}
}

// voteOften takes votes back that have become stale, until ctx is done.
func (v *vantage) voteOften(ctx context.Context) {
	ticker := time.NewTicker(staleCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		for st := range v.engine.All() {
			v.vote(st.ID)
		}
	}
}

// vote brings the vote about a probe up to date.
func (v *vantage) vote(of probe.ID) {
	id, isPoll := votedOn(of)
	if !isPoll {
		return
	}
	v.voteMu.Lock()
	defer v.voteMu.Unlock()
	st, ok := v.engine.Status(of)
	if !ok {
		v.voter.Remove(id)
		return
	}
	now := vote.Vote{Instance: st.Instance}
	if st.Decided && !isStale(&st, time.Now()) {
		now.Verdict = st.Verdict
	}
	if err := v.voter.Set(id, now); err != nil {
		v.log.Error("a vote cannot be given", "engine", v.name, "probe", id.String(), "error", err)
	}
}

// isStale reports whether a verdict is not known any more, since no attempt has ended for too long.
func isStale(st *engine.Status, now time.Time) bool {
	_, longest := st.Rule.Periods()
	return !st.ResultAt.IsZero() && now.Sub(st.ResultAt) > stalePeriods*(longest+st.Rule.Timeout)
}
