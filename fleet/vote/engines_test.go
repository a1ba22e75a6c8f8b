package vote_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/doubt"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/fleet/vote"
	"github.com/sonde-probe/sonde/probe"
)

// network says which engines reach which targets.
type network struct {
	networkMu sync.Mutex                       // guards reaches
	reaches   func(engine, target string) bool // nil: each does
}

func (n *network) set(reaches func(engine, target string) bool) {
	n.networkMu.Lock()
	defer n.networkMu.Unlock()
	n.reaches = reaches
}

func (n *network) attempt(engine, target string) probe.Result {
	n.networkMu.Lock()
	defer n.networkMu.Unlock()
	if n.reaches == nil || n.reaches(engine, target) {
		return probe.Succeed("")
	}
	return probe.Fail("tcp.timeout", "no answer")
}

// prober is an engine that probes as a vantage, votes, and doubts.
type prober struct {
	*node
	engine *engine.Engine
	doubts doubt.State
}

// startProber starts an engine that probes the targets for which it is chosen, by a rule.
func startProber(t *testing.T, name string, b coord.Backend, net *network, targets []string, r quorum.Rule) *prober {
	t.Helper()
	ballots := map[probe.ID]vote.Ballot{}
	for _, target := range targets {
		ballots[readiness(target)] = vote.Ballot{Rule: r, Instance: probe.StaticID}
	}
	p := &prober{node: start(t, name, b, ballots), engine: engine.New(engine.Config{})}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.engine.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() { p.choose(ctx, t, net, targets, r.WithDefaults()) })
	running.Go(func() { p.vote(ctx, t) })
	t.Cleanup(func() { stop(); running.Wait() })
	return p
}

// choose gives the engine the targets for which it is chosen.
func (p *prober) choose(ctx context.Context, t *testing.T, net *network, targets []string, r quorum.Rule) {
	for ctx.Err() == nil {
		live, changed := p.Vantages()
		set := probe.Set{}
		for _, target := range targets {
			if !slices.Contains(quorum.Choose(shard.Of(target), r, live), p.name) {
				continue
			}
			handler := probe.HandlerFunc(func(_ context.Context, at probe.Target) probe.Result { return net.attempt(p.name, at.Name) })
			set[readiness(target)] = probe.Probe{
				Rule: probe.Rule{Kind: probe.Readiness, Period: time.Second}, Target: probe.Target{Static: true}, Handler: handler, Revision: "1",
			}
		}
		if _, err := p.engine.Apply(set); err != nil {
			t.Error(err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// vote votes as the engine has decided, and doubts each second anew.
func (p *prober) vote(ctx context.Context, t *testing.T) {
	var observing sync.WaitGroup
	defer observing.Wait()
	var targetsMu sync.Mutex // guards targets
	var targets doubt.Targets
	observing.Go(func() {
		for ctx.Err() == nil {
			now, health := time.Now(), p.engine.Health()
			targetsMu.Lock()
			own, turned := targets.Count(now)
			targetsMu.Unlock()
			o := doubt.Observation{Unwell: health.Degraded() || health.Isolated, Own: own, New: turned, Others: p.Others()}
			p.doubts = doubt.Step(doubt.Rule{}, p.doubts, o, now)
			p.SetHealth(p.doubts.Doubtful, own)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	})
	sub := p.engine.Subscribe()
	defer sub.Close()
	for {
		st, err := sub.Next(ctx)
		if err != nil {
			return
		}
		switch {
		case st.Removed:
			p.Remove(st.ID)
			targetsMu.Lock()
			targets.Remove(st.ID.Target)
			targetsMu.Unlock()
		case st.Decided: // what it is at first says nothing
			targetsMu.Lock()
			targets.Set(st.ID.Target, st.Verdict, time.Now())
			targetsMu.Unlock()
			if err := p.Set(st.ID, vote.Vote{Instance: st.Instance, Verdict: st.Verdict}); err != nil {
				t.Error(err)
			}
		}
	}
}

// Engines that probe the same targets agree: one that loses a part of its network changes no joint verdict,
// doubts, and is ignored until it is well; what is really down is down.
func TestEnginesAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, net := coord.NewLocal(), &network{}
		var targets []string
		for i := range 24 {
			targets = append(targets, fmt.Sprint("web-", i))
		}
		r := quorum.Rule{Vantages: 4}
		var all []*prober
		for i := range 4 {
			all = append(all, startProber(t, fmt.Sprint("engine-", i), b, net, targets, r))
		}
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		expect := func(when string, verdict probe.Verdict, agreement quorum.Agreement, ignored int) {
			t.Helper()
			is := joints(t, b)
			for _, target := range targets {
				if j := is[readiness(target)]; j.Verdict != verdict || j.Agreement != agreement || len(j.Ignored) != ignored {
					t.Fatalf("%s: %s is %s", when, target, text(j))
				}
			}
		}
		pass(20 * time.Second)
		expect("all is well", probe.Passing, quorum.Unanimous, 0)
		for _, p := range all {
			p.take()
		}
		net.set(func(engine, _ string) bool { return engine != "engine-3" })
		pass(20 * time.Second)
		expect("one is cut off", probe.Passing, quorum.Unanimous, 1)
		for _, p := range all {
			if isWrong := p.name == "engine-3"; p.doubts.Doubtful != isWrong || p.doubts.MayAct == isWrong {
				t.Errorf("%s: %+v", p.name, p.doubts)
			}
			if slices.ContainsFunc(p.take(), func(s string) bool { return s[len(s)-len("passing"):] != "passing" }) {
				t.Errorf("%s has decided that some fail", p.name)
			}
		}
		net.set(nil)
		pass(20 * time.Second)
		expect("it is back", probe.Passing, quorum.Unanimous, 0)
		net.set(func(_, _ string) bool { return false })
		pass(20 * time.Second)
		expect("all are down", probe.Failing, quorum.Unanimous, 0)
		net.set(nil)
		pass(20 * time.Second)
		expect("all are well again", probe.Passing, quorum.Unanimous, 0)
	})
}
