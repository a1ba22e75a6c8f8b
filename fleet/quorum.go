package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/probe"
)

// jointPeriod is the longest interval at which the engine checks the result of a probe's votes. It also checks
// immediately when the result changes; then a success counts at once, and a failure at the next regular time.
const jointPeriod = time.Second

// reasonQuorum is the reason of a probe that fails by the votes of several engines.
const reasonQuorum probe.Reason = "quorum.failing"

// joint is the handler that a target's owner uses for a probe with a quorum. The vantages make the attempts; an attempt
// of the owner reads their joint verdict. Joints are comparable.
type joint struct {
	joints *joints
	id     probe.ID
	rule   quorum.Rule

	definition uint32 // of the probe that the vantages attempt: see engine.Definition
}

// probe returns the owner's version of a probe with a quorum. One reading of the votes decides, since the vantages apply
// the thresholds.
func (j *joints) probe(id probe.ID, p probe.Probe, r quorum.Rule) probe.Probe {
	own, definition := p.Rule.WithDefaults(), engine.Definition(p)
	p.Rule = probe.Rule{
		Period: min(own.Period, jointPeriod), Timeout: own.Timeout, SuccessThreshold: 1, FailureThreshold: 1,
		TerminationGracePeriod: own.TerminationGracePeriod, Compatibility: own.Compatibility,
	}
	p.Handler = joint{j, id, r, definition}
	if p.Revision != "" {
		p.Revision += fmt.Sprintf("/quorum/%x", definition)
	}
	return p
}

// Probe implements probe.Handler.
func (j joint) Probe(context.Context, probe.Target) probe.Result {
	now, why := j.joints.decide(j)
	if why != "" {
		return undecided(why)
	}
	if now.isOld {
		return undecided("the votes are about an earlier configuration of the probe" + now.saying())
	}
	result := now.result(j.rule)
	if (isGrayPass(now.before) || isGrayPass(result)) && now.before.Detail != result.Detail { // lets others show how vantages differ
		j.joints.changes.note(j.id.Target)
	}
	return result
}

// decision is the result of the votes about an instance.
type decision struct {
	instance string
	before   probe.Result // of the previous reading
	isOld    bool         // the votes confirm the last verdict, but no deciding vote is about the probe's current definition
	quorum.Decision
}

// decide returns the result of the votes about a probe now, or why it is unknown. The last verdict is that of this
// engine's probe, which was restored from the memory of the previous owner.
func (j *joints) decide(of joint) (d decision, why string) {
	owned, _ := j.config.Coordinator.Owned()
	lease, _ := j.config.Coordinator.Lease()
	st, _ := j.config.Engine.Status(of.id)
	switch {
	case owned[shard.Of(of.id.Target)].Token == 0 || !j.config.Coordinator.Allowed() || !j.votes.isCurrent(lease):
		return d, "the votes are unknown until this engine owns the target and has counted them"
	case st.Instance == "":
		return d, "the vantages have not voted on this instance yet"
	}
	votes, current := j.votes.about(of)
	d = decision{instance: st.Instance, before: st.Result, Decision: quorum.Decide(of.rule, votes, st.Instance, st.Verdict)}
	deciding := d.Passing
	if d.Verdict == probe.Failing {
		deciding = d.Failing
	}
	d.isOld = d.Decided && d.Verdict == st.Verdict && !slices.ContainsFunc(deciding, func(vantage string) bool { return current[vantage] })
	return d, ""
}

// hasEvidence reports whether the instance of a target may be terminated because a probe fails: the probe is decided by
// its owner alone, or the votes of the vantages about this instance decide now that it fails. A verdict that is failing
// only because too few vantages vote is not enough.
func (j *joints) hasEvidence(target string) bool {
	st, _ := j.config.Engine.Target(target)
	for i := range st.Probes {
		p := &st.Probes[i]
		if !p.FailsInstance(p.Instance) {
			continue
		}
		of, isJoint := j.desired.joint(p.ID)
		if !isJoint {
			return true
		}
		if d, why := j.decide(of); why == "" && d.Decided && d.Verdict == probe.Failing && d.instance == p.Instance {
			return true
		}
	}
	return false
}

// result returns the result that the probe's engine publishes. It lists the votes of the vantages.
func (d decision) result(r quorum.Rule) probe.Result {
	passing, failing := len(d.Passing), len(d.Failing)
	switch {
	case !d.Decided && passing+failing < r.Min:
		return undecided(fmt.Sprintf("%d votes count, and %d are needed%s", passing+failing, r.Min, d.saying()))
	case !d.Decided:
		return undecided("as many vantages pass as fail" + d.saying())
	case d.Verdict == probe.Failing && d.IsGray():
		return probe.Fail(probe.ReasonQuorumGray, "failing at %d of %d vantages%s", failing, passing+failing, d.saying())
	case d.Verdict == probe.Failing:
		return probe.Fail(reasonQuorum, "failing at %d of %d vantages%s", failing, passing+failing, d.saying())
	case d.IsGray():
		return probe.Warn(probe.ReasonQuorumGray, "failing at %d of %d vantages%s", failing, passing+failing, d.saying())
	}
	return probe.Succeed(fmt.Sprintf("passing at %d vantages%s", passing, d.saying()))
}

// undecided returns a result that changes no verdict.
func undecided(why string) probe.Result {
	return probe.Result{Reason: probe.ReasonNoQuorum, Detail: why, NoRetry: true}
}

// isGrayPass reports whether a result is that of a probe that passes although some votes fail.
func isGrayPass(r probe.Result) bool {
	return r.Outcome == probe.Warning && r.Reason == probe.ReasonQuorumGray
}

// saying lists the vantages by their votes, such as ": failing at engine-2; passing at engine-1, engine-3".
func (d decision) saying() string {
	var s strings.Builder
	separator := ": "
	for _, some := range []struct {
		says  string
		names []string
	}{{"failing at ", d.Failing}, {"passing at ", d.Passing}, {"not counted: ", d.Ignored}} {
		if len(some.names) > 0 {
			s.WriteString(separator + some.says + strings.Join(some.names, ", "))
			separator = "; "
		}
	}
	return s.String()
}

// joints decides this engine's probes with a quorum by the votes of the vantages.
type joints struct {
	config  Config
	votes   *votes
	desired *desired
	changes *changes
}

// gray counts the probes of owned shards on which the vantages disagree.
func (j *joints) gray() (n int) {
	owned, _ := j.config.Coordinator.Owned()
	desired := j.desired.get()
	for id := range owned {
		for _, of := range desired[id].joints() {
			if d, why := j.decide(of); why == "" && d.IsGray() {
				n++
			}
		}
	}
	return n
}

// voted triggers a reading of the votes about a target, if this engine owns it.
func (j *joints) voted(target string) {
	st, _ := j.config.Engine.Target(target)
	for i := range st.Probes {
		id := st.Probes[i].ID
		if _, isJoint := j.desired.joint(id); isJoint {
			j.config.Engine.Trigger(id)
		}
	}
}

// checkQuorums returns an error if the quorums of targets are invalid. Package config has validated their rules.
func (t Targets) checkQuorums() error {
	polls := map[string]int{}
	for id := range t.Quorums {
		if polls[id.Target]++; polls[id.Target] > maxPolls {
			return fmt.Errorf("target %q: more than %d of its probes have a quorum: remove some, or divide the target", id.Target, maxPolls)
		}
		if err := pollOf(id).Check(); err != nil {
			return fmt.Errorf("quorum of probe %q: %w", id, err)
		}
	}
	return nil
}

// joints returns the probes that vantages decide.
func (t *Targets) joints() (all []joint) {
	for _, p := range t.probes() {
		if of, isJoint := p.Handler.(joint); isJoint {
			all = append(all, of)
		}
	}
	return all
}

// Quorum counts the probes that vantages decide.
type Quorum struct {
	Polls int // number of probes that this engine attempts as a vantage
	Gray  int // number of probes of this engine on which engines disagree, with a quorum or without
}

// Quorum returns the current counts.
func (f *Fleet) Quorum() Quorum {
	return Quorum{Polls: f.vantage.polls(), Gray: f.joints.gray() + f.opinions.gray()}
}

// verdictOf returns the verdict of a target by those of its probes for which counts is true: failing if one of them
// fails.
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

// with returns targets in which the owner's versions replace the probes with a quorum.
func (j *joints) with(t Targets) Targets {
	if len(t.Quorums) == 0 {
		return t
	}
	t.Probes = maps.Clone(t.Probes)
	for id, r := range t.Quorums {
		t.Probes[id] = j.probe(id, t.Probes[id], r.WithDefaults())
	}
	return t
}
