package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/fleet/vote"
	"github.com/sonde-probe/sonde/probe"
)

// jointPeriod is how often the engine asks, at the least, what the votes about a probe add up to. It asks at once
// when that has changed; then a success counts, and a failure at the next regular time.
const jointPeriod = time.Second

// joint is the handler that the owner of a target has for a probe with a quorum: the attempts are those of the
// vantages, and its own are looks at their joint verdict. Joints are comparable.
type joint struct {
	fleet *Fleet
	id    probe.ID
	rule  quorum.Rule
}

// jointProbe returns what the engine of the owner has of a probe with a quorum. One look decides: the thresholds
// are those of the vantages.
func (f *Fleet) jointProbe(id probe.ID, p probe.Probe, r quorum.Rule) probe.Probe {
	own := p.Rule.WithDefaults()
	p.Rule = probe.Rule{
		Period: min(own.Period, jointPeriod), Timeout: own.Timeout, SuccessThreshold: 1, FailureThreshold: 1,
		TerminationGracePeriod: own.TerminationGracePeriod, Compatibility: own.Compatibility,
	}
	p.Handler = joint{f, id, r}
	if p.Revision != "" {
		p.Revision += "/quorum"
	}
	return p
}

// Probe implements probe.Handler.
func (j joint) Probe(context.Context, probe.Target) probe.Result {
	now, ok := j.fleet.joints.get(j.id)
	st, exists := j.fleet.config.Engine.Status(j.id)
	switch {
	case !ok || !exists || now.Instance != st.Instance:
		return undecided("the vantages have not voted on this instance yet")
	case !j.fleet.hasCounted(j.id, now):
		return undecided("the votes are not known: this engine has to own the target first, and to count them")
	}
	return resultOf(now, j.rule)
}

// hasCounted reports whether a joint verdict is of votes that this engine has counted as the present owner of the
// probe's target. Otherwise they may be gone or have changed.
func (f *Fleet) hasCounted(id probe.ID, j vote.Joint) bool {
	owned, _ := f.config.Coordinator.Owned()
	return f.config.Coordinator.Allowed() && j.Token != 0 && j.Token == owned[shard.Of(id.Target)].Token
}

// hasEvidence reports whether the instance of a target may be terminated for a probe that fails: one that its owner
// alone decides, or that the votes of the vantages about this instance decide now. A failure that merely stands, since
// too few vantages vote, is none.
func (f *Fleet) hasEvidence(target string) bool {
	st, _ := f.config.Engine.Target(target)
	for i := range st.Probes {
		p := &st.Probes[i]
		if p.Verdict != probe.Failing || p.ID.Kind == probe.Readiness {
			continue
		}
		if !f.hasQuorum(p.ID) {
			return true
		}
		j, ok := f.joints.get(p.ID)
		if ok && j.Decided && j.Verdict == probe.Failing && j.Instance == p.Instance && f.hasCounted(p.ID, j) {
			return true
		}
	}
	return false
}

// resultOf returns a joint verdict as the result of an attempt, with who says what.
func resultOf(j vote.Joint, r quorum.Rule) probe.Result {
	passing, failing := len(j.Passing), len(j.Failing)
	isGray := j.Agreement == quorum.Gray
	switch {
	case !j.Decided && passing+failing < r.Min:
		return undecided(fmt.Sprintf("%d votes count, and %d are needed%s", passing+failing, r.Min, saying(j)))
	case !j.Decided || j.Verdict == probe.Undecided:
		return undecided("as many vantages pass as fail" + saying(j))
	case j.Verdict == probe.Failing && isGray:
		return probe.Fail(probe.ReasonGray, "failing at %d of %d vantages%s", failing, passing+failing, saying(j))
	case j.Verdict == probe.Failing:
		return probe.Fail(probe.ReasonQuorum, "failing at %d of %d vantages%s", failing, passing+failing, saying(j))
	case isGray:
		return probe.Warn(probe.ReasonGray, "failing at %d of %d vantages%s", failing, passing+failing, saying(j))
	}
	return probe.Succeed(fmt.Sprintf("passing at %d vantages%s", passing, saying(j)))
}

// undecided returns a result that changes no verdict.
func undecided(why string) probe.Result {
	return probe.Result{Reason: probe.ReasonNoQuorum, Detail: why, NoRetry: true}
}

// saying returns the vantages by what they say, such as ": failing at engine-2; passing at engine-1, engine-3".
func saying(j vote.Joint) string {
	var s strings.Builder
	separator := ": "
	for _, some := range []struct {
		says  string
		names []string
	}{{"failing at ", j.Failing}, {"passing at ", j.Passing}, {"not counted: ", j.Ignored}} {
		if len(some.names) > 0 {
			s.WriteString(separator + some.says + strings.Join(some.names, ", "))
			separator = "; "
		}
	}
	return s.String()
}

// joints are the joint verdicts of the shards that this engine owns.
type joints struct {
	jointsMu sync.Mutex // guards all
	all      map[probe.ID]vote.Joint
}

func (j *joints) get(id probe.ID) (vote.Joint, bool) {
	j.jointsMu.Lock()
	defer j.jointsMu.Unlock()
	joint, ok := j.all[id]
	return joint, ok
}

func (j *joints) set(id probe.ID, now vote.Joint) (before vote.Joint) {
	j.jointsMu.Lock()
	defer j.jointsMu.Unlock()
	before = j.all[id]
	j.all[id] = now
	return before
}

// forget forgets the joint verdicts of probes that this engine no longer has: another may decide others.
func (j *joints) forget(ids []probe.ID) {
	j.jointsMu.Lock()
	defer j.jointsMu.Unlock()
	for _, id := range ids {
		delete(j.all, id)
	}
}

// gray counts the probes about which the vantages differ.
func (j *joints) gray() (n int) {
	j.jointsMu.Lock()
	defer j.jointsMu.Unlock()
	for _, now := range j.all {
		if now.Agreement == quorum.Gray {
			n++
		}
	}
	return n
}

// isGrayPass reports whether the votes say that a probe passes though some fail.
func isGrayPass(j vote.Joint) bool {
	return j.Decided && j.Verdict == probe.Passing && j.Agreement == quorum.Gray
}

// decided takes a joint verdict of a shard that this engine owns. Others show how the vantages differ, as they do now.
func (f *Fleet) decided(id probe.ID, j vote.Joint) {
	before := f.joints.set(id, j)
	f.config.Engine.Trigger(id)
	if isGrayPass(before) || isGrayPass(j) {
		f.markSoon(id.Target)
	}
}

// checkQuorums returns what is wrong with the quorums of targets, or nil.
func (t Targets) checkQuorums() error {
	for id, r := range t.Quorums {
		_, exists := t.Probes[id]
		switch {
		case !exists:
			return fmt.Errorf("quorum of probe %q: the probe is not in the set", id)
		case id.Kind == probe.Startup:
			return fmt.Errorf("quorum of probe %q: a startup probe cannot have one", id)
		}
		if err := errors.Join(r.WithDefaults().Check(), pollOf(id).Check()); err != nil {
			return fmt.Errorf("quorum of probe %q: %w", id, err)
		}
	}
	return nil
}

// count has the votes about the probes of targets counted.
func (f *Fleet) count(t Targets) {
	f.ballotsMu.Lock()
	defer f.ballotsMu.Unlock()
	ballots := make(map[probe.ID]vote.Ballot, len(t.Quorums))
	for id, r := range t.Quorums {
		b := vote.Ballot{Rule: r, Instance: probe.StaticID}
		if t.Units[id.Target].Driver != nil {
			st, _ := f.config.Engine.Status(id)
			b.Instance, b.Token = "", f.loadedWith(shard.Of(id.Target))
			if b.Token != 0 {
				b.Instance = st.Instance
			}
		}
		ballots[id] = b
	}
	_ = f.counter.Apply(ballots) // has no error: checkQuorums has checked them
}

// countInstances has the votes about those instances counted that probes with a quorum are about now, of targets of a
// shard. Those that this engine knows from before it has loaded what the last owner has stored are not known.
func (f *Fleet) countInstances(in shard.ID, ids ...probe.ID) {
	f.ballotsMu.Lock()
	defer f.ballotsMu.Unlock()
	token := f.loadedWith(in)
	instances := make(map[string]string, len(ids))
	for _, id := range ids {
		if st, ok := f.config.Engine.Status(id); ok && st.Instance != "" && st.Instance != probe.StaticID {
			instances[id.Target] = st.Instance
		}
	}
	if token != 0 && len(instances) > 0 {
		f.counter.SetInstances(in, token, instances)
	}
}

// loadedWith returns the token with which this engine has loaded the memories of a shard, 0 if it has not.
func (f *Fleet) loadedWith(in shard.ID) coord.Revision {
	f.desiredMu.Lock()
	defer f.desiredMu.Unlock()
	return f.loaded[in]
}

// jointProbes returns the probes that vantages decide.
func (t *Targets) jointProbes() (ids []probe.ID) {
	for id, p := range t.probes() {
		if _, isJoint := p.Handler.(joint); isJoint {
			ids = append(ids, id)
		}
	}
	return ids
}

// hasQuorum reports whether a probe of the engine is one that vantages decide.
func (f *Fleet) hasQuorum(id probe.ID) bool {
	f.desiredMu.Lock()
	defer f.desiredMu.Unlock()
	_, isJoint := f.desiredProbe(id).Handler.(joint)
	return isJoint
}

// Quorum is what an engine knows of the probes that vantages decide.
type Quorum struct {
	Polls int // how many probes this engine attempts as a vantage
	Gray  int // of those that this engine owns: about how many the vantages differ
}

// Quorum returns what this engine knows now.
func (f *Fleet) Quorum() Quorum { return Quorum{Polls: f.vantage.polls(), Gray: f.joints.gray()} }

// verdictOf returns the verdict of a target by some of its probes: failing if one of them fails.
func verdictOf(e *engine.Engine, target string, counts func(probe.ID) bool) (v probe.Verdict) {
	st, _ := e.Target(target)
	for i := range st.Probes {
		switch p := &st.Probes[i]; {
		case !p.Decided || !counts(p.ID):
		case p.Verdict == probe.Failing:
			return probe.Failing
		default:
			v = p.Verdict
		}
	}
	return v
}

// withQuorums returns targets whose probes with a quorum are those of their owner.
func (f *Fleet) withQuorums(t Targets) Targets {
	if len(t.Quorums) == 0 {
		return t
	}
	t.Probes = maps.Clone(t.Probes)
	for id, r := range t.Quorums {
		t.Probes[id] = f.jointProbe(id, t.Probes[id], r.WithDefaults())
	}
	return t
}
