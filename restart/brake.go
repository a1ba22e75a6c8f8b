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
	Name     string               // for people: "the push of revision 7"
	Changes  []engine.ProbeChange // of all probes; those of readiness are ignored
	Forced   bool                 // an operator insists: no restart waits for this reload, nor for an earlier one
	Memories map[string]Memory    // by target, of a start or a takeover; nil for others. Those of targets that have exited say that these failed before
}

// Reloading says that a reload is about to change probes. While more than a fifth of the startup and liveness probes whose
// handlers or rules it changes, or which it adds, fail and have never succeeded since, the configuration is probably wrong:
// restarts by these probes wait, with the reason restart.reload, until fewer fail, or until another Reload replaces them or
// is forced. Probes of targets that fail already, or whose instances have exited, do not count, nor does a reload of fewer
// than five probes. Call it before the engine makes the change, and for a start only if there are memories of probes: without
// them nothing is known to have changed, and a machine that was down must recover.
func (c *Controller) Reloading(r Reload) { c.brake.reloading(r, time.Now()) }

// Limits of the brake.
const (
	maxUnproven probe.Share = 0.2

	// minReloaded is the number of probes from which on it works: of fewer, one that really fails is more than a fifth.
	minReloaded = 5

	// answerTime is how long probes that have not answered yet are left out of the count. The first ones that fail are not
	// many of all, though the others are about to fail. Later, probes that do not answer must not withhold restarts.
	answerTime = time.Minute

	// brakeInterval is how long the latest count is used while no restart waits; otherwise that is healthInterval.
	brakeInterval = 100 * time.Millisecond
)

// brake withholds restarts by probes that reloads have changed: see Controller.Reloading.
type brake struct {
	engine *engine.Engine
	log    *slog.Logger

	brakeMu  sync.Mutex            // guards all below; it is held while the engine is read
	unproven map[probe.ID]reloaded // until a success is found
	takeover *trial                // the latest one with Memories; nil before the first
}

// reloaded is a probe that a reload has changed.
type reloaded struct {
	by        *trial
	isFailing bool // it is one of trial.failing
}

// trial is a reload whose probes are counted.
type trial struct {
	name string
	at   time.Time

	countedAt               time.Time
	proven, failing, silent int  // its probes that have succeeded, that have only failed, and others
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

// trialOf returns the trial of a reload: a takeover that follows another one, whose probes are not all decided, belongs to its
// trial, since each of them may bring few.
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

// hasFailed reports whether a target fails, or its instance has exited or is in a crash loop. It says nothing about the next
// configuration then.
func (b *brake) hasFailed(target string) bool {
	t, _ := b.engine.Target(target)
	switch t.Instance.Reason {
	case "", probe.ReasonStartAfter, probe.ReasonStarting:
		return t.Instance.Phase == probe.Running && !t.Live
	}
	return true
}

// withholds returns why the restart waits that a failing probe wants, "" for not at all.
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
	case p.Tried == probe.Success: // and fails again
		return ""
	case p.Tried != probe.Failure && now.Sub(t.at) < answerTime: // its verdict is that of an earlier handler
		return fmt.Sprintf("%s has changed the probe, which has no outcome since", t.name)
	case !b.unproven[id].isFailing: // it was not, when all were counted
		b.unproven[id] = reloaded{t, true}
		t.failing, t.silent = t.failing+1, t.silent-1
	}
	if b.decide(t, now); !t.isOn {
		return ""
	}
	return fmt.Sprintf("%s has changed the probe, and more than %v of the probes that it has changed fail", t.name, maxUnproven)
}

// mayWithhold returns Memory.Unproven of a target.
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

// recount counts the probes of a reload if the latest count is too old. It needs brakeMu.
func (b *brake) recount(t *trial, now time.Time) {
	interval := brakeInterval
	if t.isOn {
		interval = healthInterval
	}
	if now.Sub(t.countedAt) >= interval {
		b.count(t, now)
	}
}

// count counts the probes of a reload by what they have answered. It needs brakeMu.
func (b *brake) count(t *trial, now time.Time) {
	t.countedAt, t.failing, t.silent = now, 0, 0
	for id, of := range b.unproven {
		if of.by != t {
			continue
		}
		p, exists := b.engine.Status(id)
		isFailing := p.Tried == probe.Failure && p.Rule.Effect == probe.EffectFail && (id.Kind == probe.Liveness || p.Verdict == probe.Failing) // a startup probe may fail for long
		switch {
		case !exists: // another engine of the fleet has it
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

// decide decides whether restarts wait for what a reload has changed. It needs brakeMu.
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
		b.log.Info("restarts no longer wait, fewer of the probes that a reload has changed fail", attrs...)
		return
	}
	b.log.Warn("restarts wait, too many of the probes that a reload has changed fail", append(attrs, "hint",
		"correct the configuration and reload or push it; sonde restart TARGET restarts one target, and sonde reload --force lets all restarts go on")...)
}

// unproven says that only probes fail that a reload has changed, as many others do.
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
	if why == "" { // none fails any more: its first success may just have ended what withholds restarts
		return delay{until: now.Add(inquiryInterval)}
	}
	return delay{reason: probe.ReasonReload, until: now.Add(healthInterval), detail: why}
}
