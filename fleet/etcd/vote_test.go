package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/etcd"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// voted returns n targets that pass and have a quorum.
func voted(n int) fleet.Targets {
	all := fleet.Targets{Probes: probe.Set{}, Units: map[string]restart.Unit{}, Quorums: map[probe.ID]quorum.Rule{}}
	for i := range n {
		id := probe.ID{Target: fmt.Sprint("web-", i), Kind: probe.Readiness}
		all.Quorums[id], all.Units[id.Target] = quorum.Rule{}, restart.Unit{}
		all.Probes[id] = probe.Probe{
			Rule: probe.Rule{Period: time.Second}, HandlerName: "test", Revision: "1",
			Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Succeed("") }),
		}
	}
	return all
}

// noNotices has no receivers.
type noNotices struct{}

func (noNotices) Notified(string) []byte                  { return nil }
func (noNotices) SetNotified(string, []byte) error        { return nil }
func (noNotices) NotifiedOfGroup(string) []byte           { return nil }
func (noNotices) SetNotifiedOfGroup(string, []byte) error { return nil }

// startVoter starts an engine that votes on targets. It runs until end is called or the test ends.
func startVoter(t *testing.T, name string, b coord.Backend, targets fleet.Targets) (shared *fleet.Fleet, end func()) {
	t.Helper()
	co, err := coord.New(coord.Config{Name: name, Backend: b, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(engine.Config{})
	restarts, err := restart.New(restart.Config{Engine: e})
	if err != nil {
		t.Fatal(err)
	}
	shared = fleet.New(fleet.Config{Coordinator: co, Engine: e, Restarts: restarts, Notices: noNotices{}})
	commit, err := shared.Plan(targets)
	if err != nil {
		t.Fatal(err)
	}
	commit()
	ctx, stop := context.WithCancel(context.Background())
	member, leave := context.WithCancel(context.Background())
	var sharing, running sync.WaitGroup
	sharing.Go(func() { shared.Run(ctx) })
	running.Go(func() { co.Run(member) })
	running.Go(func() { _ = restarts.Run(member) })
	running.Go(func() { _ = e.Run(member) })
	end = sync.OnceFunc(func() { stop(); sharing.Wait(); leave(); running.Wait() })
	t.Cleanup(end)
	return shared, end
}

// Votes are put, replaced and deleted, and vanish with the membership of their engine, and engines know which engines
// vote. The results of the votes are not tested: on a busy machine, engines doubt themselves.
func TestEnginesVoteOnEtcd(t *testing.T) {
	const targets = 300
	nodes := cluster(t, "http", 3)
	backend := func() coord.Backend {
		return open(t, etcd.Config{Endpoints: endpoints(nodes), Prefix: "/votes/"})
	}
	var engines []*fleet.Fleet
	var ends []func()
	for i := range nodes {
		shared, end := startVoter(t, fmt.Sprint("engine-", i), backend(), voted(targets))
		engines, ends = append(engines, shared), append(ends, end)
	}
	store := backend()
	await := func(what string, want ...int) {
		t.Helper()
		until(t, fmt.Sprintf("%s: the engines have put %v votes", what, want), func() bool {
			for i, n := range want {
				entries, _, err := store.Range(t.Context(), fmt.Sprintf("vote/engine-%d/", i))
				if err != nil || len(entries) != n {
					return false
				}
				for _, e := range entries {
					if !strings.Contains(string(e.Value), `"verdict":"passing"`) {
						return false
					}
				}
			}
			return true
		})
	}
	await("all vote", targets, targets, targets)
	commit, err := engines[0].Plan(voted(targets / 2))
	if err != nil {
		t.Fatal(err)
	}
	commit()
	await("one has fewer targets", targets/2, targets, targets)
	ends[1]()
	await("another one has ended", targets/2, 0, targets)
	until(t, "two engines are known", func() bool { return len(engines[2].Engines()) == 2 })
}
