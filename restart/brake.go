package restart

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// Reload is a change of an engine's probes, by a reload, a push, or a start with another configuration.
type Reload struct {
	Name    string               // for people: "the push of revision 7"
	Changes []engine.ProbeChange // of all probes; readiness probes are ignored
	Forced  bool                 // set by an operator: restarts wait neither for this reload nor for an earlier one
	// Memories holds the memories of a start or a takeover, by target; nil for any other reload. A target whose memory
	// says that it has exited counts as failed before the reload.
	Memories map[string]Memory
}

// Reloading announces that a reload is about to change probes. If more than a fifth of the startup and liveness probes
// that it adds, or whose handlers or rules it changes, fail and have not succeeded since, the configuration is probably
// wrong: restarts by these probes wait, with the reason restart.reload, until fewer fail, or until another Reload
// replaces them or is forced. A reload of fewer than five probes does not count, nor do probes of targets that already
// fail or whose instances have exited. Call Reloading before the engine makes the change. At a start, call it only if
// there are memories of probes: without them the change is unknown, and a machine that was down must recover.
func (c *Controller) Reloading(r Reload) { c.brake.reloading(r, time.Now()) }

// Limits of the brake.
const (
	maxUnproven probe.Share = 0.2

	// minReloaded is the minimum number of changed probes. With fewer, a single failing probe could be more than a
	// fifth.
	minReloaded = 5

	// answerTime is the time during which probes without an outcome are left out of the count. Otherwise the first
	// failing probes would be a small share of all, although the others are about to fail. After that time, probes
	// without an outcome must not withhold restarts.
	answerTime = time.Minute

	// brakeInterval is the maximum age of a count while no restart waits; while restarts wait, it is healthInterval.
	brakeInterval = 100 * time.Millisecond
)

// brake withholds restarts by probes that reloads have changed: see Controller.Reloading.
type brake struct {
	engine *engine.Engine
	log    *slog.Logger

	brakeMu  sync.Mutex            // guards all below; it is held while the engine is queried
	unproven map[probe.ID]reloaded // changed probes whose success has not been seen yet
	takeover *trial                // the latest trial with Memories; nil before the first
}

// reloaded is a probe that a reload has changed.
type reloaded struct {
	by        *trial
	isFailing bool // it is counted in trial.failing
}

// trial is a reload whose changed probes are counted.
type trial struct {
	name string
	at   time.Time

	countedAt               time.Time
	proven, failing, silent int  // probes that have succeeded, that have only failed, and all others
	isOn                    bool // restarts wait
}

func newBrake(e *engine.Engine, log *slog.Logger) *brake {
	return &brake{engine: e, log: log, unproven: map[probe.ID]reloaded{}}
}

func (b *brake) reloading(r Reload, now time.Time) {
	b.brakeMu.Lock()
	defer b.brakeMu.Unlock()
	if r.Forced {
		clear(b.unproven)
		return
	}
	next := b.trialOf(r)
	failed := map[string]bool{}
	for _, c := range r.Changes {
		failed[c.ID.Target] = failed[c.ID.Target] || c.Failed
	}
	for _, c := range r.Changes {
		switch _, is := b.unproven[c.ID]; {
		case is && r.Memories != nil: // an earlier reload has changed it
		case c.Action == engine.ProbeRemoved:
			delete(b.unproven, c.ID)
		case c.Proven, c.ID.Kind == probe.Readiness, !is && (failed[c.ID.Target] || r.Memories[c.ID.Target].hasFailed(now) || b.hasFailed(c.ID.Target)):
		default:
			next.at = now
			b.unproven[c.ID] = reloaded{by: next}
		}
	}
}

// trialOf returns the trial for a reload. A takeover joins the trial of the previous takeover if some probes of that
// one are still undecided, since each takeover may change only a few probes.
func (b *brake) trialOf(r Reload) *trial {
	next := &trial{name: r.Name}
	if r.Memories == nil {
		return next
	}
	for _, of := range b.unproven {
		if of.by == b.takeover {
			return of.by
		}
	}
	b.takeover = next
	return next
}

// hasFailed reports whether a target fails, or its instance has exited or is in a crash loop. Such a target says
// nothing about the next configuration.
func (b *brake) hasFailed(target string) bool {
	t, _ := b.engine.Target(target)
	switch t.Instance.Reason {
	case "", probe.ReasonStartAfter, probe.ReasonStarting:
		return t.Instance.Phase == probe.Running && !t.Live
	}
	return true
}

// withholds returns why the restart by a failing probe must wait, or "" if it need not.
func (b *brake) withholds(id probe.ID, now time.Time) string {
	b.brakeMu.Lock()
	defer b.brakeMu.Unlock()
	t := b.unproven[id].by
	if t == nil {
		return ""
	}
	b.recount(t, now)
	p, _ := b.engine.Status(id)
	switch {
	case p.Rule.Compatibility == probe.Kubelet:
		return ""
	case p.Tried == probe.Success: // it has succeeded since the reload
		return ""
	case p.Tried != probe.Failure && now.Sub(t.at) < answerTime: // its verdict comes from an earlier handler
		return fmt.Sprintf("%s changed the probe, which has had no outcome since", t.name)
	case !b.unproven[id].isFailing: // it was not failing at the last count
		b.unproven[id] = reloaded{t, true}
		t.failing, t.silent = t.failing+1, t.silent-1
	}
	if b.decide(t, now); !t.isOn {
		return ""
	}
	return fmt.Sprintf("%s changed the probe, and more than %v of the changed probes fail", t.name, maxUnproven)
}

// mayWithhold returns the value of Memory.Unproven for a target.
func (b *brake) mayWithhold(target string, now time.Time) bool {
	b.brakeMu.Lock()
	defer b.brakeMu.Unlock()
	if len(b.unproven) == 0 {
		return false
	}
	of, _ := b.engine.Target(target)
	return slices.ContainsFunc(of.Probes, func(p engine.Status) bool {
		t := b.unproven[p.ID].by
		if t == nil || p.Tried == probe.Success || p.Rule.Compatibility == probe.Kubelet {
			return false
		}
		if p.Verdict == probe.Failing {
			b.recount(t, now)
			b.decide(t, now)
			return t.isOn
		}
		return true
	})
}

// recount counts the probes of a reload if the last count is too old. It needs brakeMu.
func (b *brake) recount(t *trial, now time.Time) {
	interval := brakeInterval
	if t.isOn {
		interval = healthInterval
	}
	if now.Sub(t.countedAt) >= interval {
		b.count(t, now)
	}
}

// count counts the probes of a reload by their outcomes. It needs brakeMu.
func (b *brake) count(t *trial, now time.Time) {
	t.countedAt, t.failing, t.silent = now, 0, 0
	for id, of := range b.unproven {
		if of.by != t {
			continue
		}
		p, exists := b.engine.Status(id)
		// A startup probe may fail for a long time.
		isFailing := p.Tried == probe.Failure && p.Rule.Effect == probe.EffectFail && (id.Kind == probe.Liveness || p.Verdict == probe.Failing)
		switch {
		case !exists: // another engine of the fleet probes it
		case p.Tried == probe.Success:
			delete(b.unproven, id)
			t.proven++
			continue
		case isFailing:
			t.failing++
		default:
			t.silent++
		}
		b.unproven[id] = reloaded{t, isFailing}
	}
}

// decide updates whether restarts wait because of a reload, and logs a change. It needs brakeMu.
func (b *brake) decide(t *trial, now time.Time) {
	of := t.proven + t.failing
	if now.Sub(t.at) >= answerTime {
		of += t.silent
	}
	isOn := t.proven+t.failing+t.silent >= minReloaded && isMore(t.failing, of, maxUnproven)
	if t.isOn == isOn {
		return
	}
	t.isOn = isOn
	attrs := []any{"reload", t.name, "failing", t.failing, "succeeded", t.proven, "without_outcome", t.silent}
	if !isOn {
		b.log.Info("restarts no longer delayed: fewer of the probes changed by a reload fail", attrs...)
		return
	}
	b.log.Warn("restarts delayed: too many of the probes changed by a reload fail", append(attrs, "hint",
		"correct the configuration and reload or push it; sonde restart TARGET restarts one target, and sonde reload --force permits all restarts")...)
}

// unproven delays the restart if all failing probes of the target were changed by a reload and many other changed
// probes fail.
func (i *instance) unproven(now time.Time, _ probe.ID) delay {
	s := i.supervisor
	if i.notice.Reason != "" {
		return delay{}
	}
	target, _ := s.control.config.Engine.Target(s.target)
	var why string
	for _, p := range target.Probes {
		if !p.FailsInstance(i.id) {
			continue
		}
		if why = s.control.brake.withholds(p.ID, now); why == "" {
			if p, _ = s.control.config.Engine.Status(p.ID); p.FailsInstance(i.id) {
				return delay{}
			}
		}
	}
	if why == "" { // no probe fails any more, perhaps because of the success that also releases the brake
		return delay{until: now.Add(inquiryInterval)}
	}
	return delay{reason: probe.ReasonReload, until: now.Add(healthInterval), detail: why}
}
