package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/etcd"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/fleet/vote"
	"github.com/sonde-probe/sonde/probe"
)

// votes starts an engine that votes and counts, and returns what ends it.
func votes(t *testing.T, name string, b coord.Backend, ballots map[probe.ID]vote.Ballot) (v *vote.Voter, end func()) {
	t.Helper()
	co, err := coord.New(coord.Config{Name: name, Backend: b, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	v, err = vote.NewVoter(vote.VoterConfig{Coordinator: co})
	if err != nil {
		t.Fatal(err)
	}
	counter, err := vote.NewCounter(vote.CounterConfig{Coordinator: co, Voter: v})
	if err != nil {
		t.Fatal(err)
	}
	if err := counter.Apply(ballots); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context){co.Run, v.Run, counter.Run, func(ctx context.Context) { release(ctx, co) }} {
		running.Go(func() { run(ctx) })
	}
	end = sync.OnceFunc(func() { stop(); running.Wait() })
	t.Cleanup(end)
	return v, end
}

// release gives up the shards that other engines are to have, until ctx is done.
func release(ctx context.Context, co *coord.Coordinator) {
	for {
		owned, changed := co.Owned()
		var leaving []shard.ID
		for id, o := range owned {
			if o.Leaving {
				leaving = append(leaving, id)
			}
		}
		if len(leaving) > 0 {
			_ = co.Release(ctx, leaving...) // it is called again with the next change
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func TestEnginesVoteOnEtcd(t *testing.T) {
	const targets = 300
	nodes := cluster(t, "http", 3)
	ballots := map[probe.ID]vote.Ballot{}
	for i := range targets {
		ballots[probe.ID{Target: fmt.Sprint("web-", i), Kind: probe.Readiness}] = vote.Ballot{Instance: "1"}
	}
	var voters []*vote.Voter
	var ends []func()
	var shared coord.Backend
	for i := range nodes {
		shared = open(t, etcd.Config{Endpoints: endpoints(nodes), Prefix: "/votes/"})
		v, end := votes(t, fmt.Sprint("engine-", i), shared, ballots)
		voters, ends = append(voters, v), append(ends, end)
	}
	say := func(verdict probe.Verdict, by ...*vote.Voter) {
		t.Helper()
		for _, v := range by {
			for id := range ballots {
				if err := v.Set(id, vote.Vote{Instance: "1", Verdict: verdict}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	await := func(verdict probe.Verdict, votes int) {
		t.Helper()
		until(t, fmt.Sprintf("all are %v by %d votes", verdict, votes), func() bool {
			entries, _, err := shared.Range(t.Context(), vote.JointPrefix)
			n := 0
			for _, e := range entries {
				if _, j, ok := vote.ParseJoint(coord.Event{Entry: e}); ok && j.Verdict == verdict && len(j.Passing)+len(j.Failing) == votes {
					n++
				}
			}
			return err == nil && n == targets
		})
	}
	say(probe.Passing, voters...)
	await(probe.Passing, 3)
	say(probe.Failing, voters[:2]...)
	await(probe.Failing, 3)
	ends[0]()
	await(probe.Failing, 2) // one fails and one passes: the last verdict stands
	say(probe.Passing, voters[1])
	await(probe.Passing, 2)
}
