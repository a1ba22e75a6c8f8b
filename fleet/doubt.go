package fleet

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/doubt"
	"github.com/sonde-probe/sonde/probe"
)

// doubtInterval is the time between two observations.
const doubtInterval = time.Second

// doubts decides whether this engine doubts its own verdicts (package doubt), based on the verdicts of its own and other
// engines.
type doubts struct {
	name    string
	engines []*engine.Engine
	vantage *vantage
	log     *slog.Logger

	doubtMu sync.Mutex    // guards all below
	probes  doubt.Targets // targets by their probes without a quorum
	polls   doubt.Targets // targets by the verdicts of this engine as a vantage
	state   doubt.State
}

// probed sets the verdict of a target by its probes without a quorum.
func (d *doubts) probed(target string, v probe.Verdict) { d.set(&d.probes, target, v) }

// polled sets the verdict of a target by this engine as a vantage.
func (d *doubts) polled(target string, v probe.Verdict) { d.set(&d.polls, target, v) }

func (d *doubts) set(some *doubt.Targets, target string, v probe.Verdict) {
	d.doubtMu.Lock()
	defer d.doubtMu.Unlock()
	if v == probe.Undecided {
		some.Remove(target)
		return
	}
	some.Set(target, v, time.Now())
}

// run observes until ctx is done.
func (d *doubts) run(ctx context.Context) {
	ticker := time.NewTicker(doubtInterval)
	defer ticker.Stop()
	for {
		d.observe()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// observe makes one observation.
func (d *doubts) observe() {
	var o doubt.Observation
	o.Others, o.HeardAt = d.vantage.votes.others()
	for _, e := range d.engines {
		h := e.Health()
		o.Unwell = o.Unwell || h.Degraded() || h.Isolated
	}
	now := time.Now()
	d.doubtMu.Lock()
	for _, some := range []*doubt.Targets{&d.probes, &d.polls} {
		own, turned := some.Count(now)
		o.Own.Targets, o.Own.Failing, o.New = o.Own.Targets+own.Targets, o.Own.Failing+own.Failing, o.New+turned
	}
	before := d.state
	d.state = doubt.Step(before, o, now)
	after := d.state
	d.doubtMu.Unlock()
	d.vantage.votes.setHealth(after.Doubtful, o.Own)
	switch {
	case after.Alone && !before.Alone:
		d.log.Warn("only this engine finds many targets failing, so it doubts its verdicts: its votes do not count, and it restarts no shared targets",
			"engine", d.name, "failing", o.Own.Failing, "targets", o.Own.Targets, "others_failing", o.Others.Failing, "others_targets", o.Others.Targets)
	case after.Doubtful && !before.Doubtful:
		d.log.Warn("this engine is degraded or isolated, so it doubts its verdicts: its votes do not count, and it restarts only targets that have responded", "engine", d.name)
	case before.Doubtful && !after.Doubtful:
		d.log.Info("this engine no longer doubts its own verdicts", "engine", d.name)
	}
}

// now returns the doubts of this engine.
func (d *doubts) now() doubt.State {
	d.doubtMu.Lock()
	defer d.doubtMu.Unlock()
	return d.state
}

// Doubt returns whether this engine doubts its own verdicts. It is the zero State before Run.
func (f *Fleet) Doubt() doubt.State { return f.doubts.now() }

// Engines returns the latest status that each engine of the fleet has published about itself, by name.
func (f *Fleet) Engines() map[string]Vantage { return f.votes.engines() }

// MayAct reports whether this engine may act for a target of the fleet now: it owns the target, its lease is valid, and
// it does not doubt its own verdicts because it alone finds many targets failing. MayRestart decides whether a failure
// justifies a restart. Any goroutine may call it.
func (f *Fleet) MayAct(target string) bool {
	return f.doubts.now().MayAct && f.config.Coordinator.Acts().MayBegin(target)
}

// MayRestart reports whether this engine may restart a target of the fleet because a probe fails: MayAct is true, and at
// least one failing probe is decided by this engine alone or by the current votes of its vantages. Any goroutine may
// call it.
func (f *Fleet) MayRestart(target string) bool {
	return f.MayAct(target) && f.joints.hasEvidence(target)
}
