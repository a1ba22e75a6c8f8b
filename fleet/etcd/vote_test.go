package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
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

// voter is an engine that probes all targets as a vantage, and says which of those that it owns pass or fail.
type voter struct {
	engine *engine.Engine
	sees   atomic.Bool // targets pass
	end    func()
}

// startVoter starts an engine, which ends with the test or by voter.end.
func startVoter(t *testing.T, name string, b coord.Backend, targets int) *voter {
	t.Helper()
	v := &voter{engine: engine.New(engine.Config{})}
	v.sees.Store(true)
	co, err := coord.New(coord.Config{Name: name, Backend: b, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	restarts, err := restart.New(restart.Config{Engine: v.engine})
	if err != nil {
		t.Fatal(err)
	}
	shared, err := fleet.New(fleet.Config{Coordinator: co, Engine: v.engine, Restarts: restarts})
	if err != nil {
		t.Fatal(err)
	}
	all := fleet.Targets{Probes: probe.Set{}, Units: map[string]restart.Unit{}, Quorums: map[probe.ID]quorum.Rule{}}
	for i := range targets {
		id := probe.ID{Target: fmt.Sprint("web-", i), Kind: probe.Readiness}
		all.Quorums[id], all.Units[id.Target] = quorum.Rule{}, restart.Unit{}
		all.Probes[id] = probe.Probe{
			Rule: probe.Rule{Period: time.Second, FailureThreshold: 1}, HandlerName: "test", Revision: "1",
			Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
				if v.sees.Load() {
					return probe.Succeed("")
				}
				return probe.Fail("test.sick", "no answer")
			}),
		}
	}
	if err := shared.Apply(all); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	member, leave := context.WithCancel(context.Background())
	var sharing, running sync.WaitGroup
	sharing.Go(func() { shared.Run(ctx) })
	running.Go(func() { co.Run(member) })
	running.Go(func() { _ = restarts.Run(member) })
	running.Go(func() { _ = v.engine.Run(member) })
	v.end = sync.OnceFunc(func() { stop(); sharing.Wait(); leave(); running.Wait() })
	t.Cleanup(v.end)
	return v
}

func TestEnginesVoteOnEtcd(t *testing.T) {
	const targets = 300
	nodes := cluster(t, "http", 3)
	var voters []*voter
	for i := range nodes {
		shared := open(t, etcd.Config{Endpoints: endpoints(nodes), Prefix: "/votes/"})
		voters = append(voters, startVoter(t, fmt.Sprint("engine-", i), shared, targets))
	}
	see := func(passing bool, some ...*voter) {
		for _, v := range some {
			v.sees.Store(passing)
		}
	}
	await := func(verdict probe.Verdict, reason probe.Reason) {
		t.Helper()
		until(t, fmt.Sprintf("all are %v, with the reason %q", verdict, reason), func() bool {
			n := 0
			for _, v := range voters {
				for st := range v.engine.All() {
					if st.Decided && st.Verdict == verdict && st.Result.Reason == reason {
						n++
					}
				}
			}
			return n == targets
		})
	}
	await(probe.Passing, "")
	see(false, voters[:2]...)
	await(probe.Failing, probe.ReasonGray)
	voters[0].end()
	voters = voters[1:]
	await(probe.Failing, probe.ReasonNoQuorum) // one fails and one passes: the last verdict stands
	see(true, voters[0])
	await(probe.Passing, "")
}
