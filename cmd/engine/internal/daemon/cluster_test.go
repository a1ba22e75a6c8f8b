package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/pause"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/coordtest"
)

// silentStore is a Store that does not respond while it is away.
type silentStore struct {
	*coordtest.Local
	isAway atomic.Bool
	ranges atomic.Int64 // number of range requests
}

func (s *silentStore) Close() error { return nil }

func (s *silentStore) wait(ctx context.Context) error {
	if s.isAway.Load() {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (s *silentStore) KeepAlive(ctx context.Context, l coord.Lease) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Local.KeepAlive(ctx, l)
}

func (s *silentStore) Revoke(ctx context.Context, l coord.Lease) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Local.Revoke(ctx, l)
}

func (s *silentStore) Get(ctx context.Context, key string) (coord.Entry, error) {
	if err := s.wait(ctx); err != nil {
		return coord.Entry{}, err
	}
	return s.Local.Get(ctx, key)
}

func (s *silentStore) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Local.Commit(ctx, all...)
}

func (s *silentStore) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	s.ranges.Add(1)
	if err := s.wait(ctx); err != nil {
		return nil, 0, err
	}
	return s.Local.Range(ctx, prefix)
}

// endless is a driver whose instances run until they are asked to end.
type endless struct{ asked func() }

func (d endless) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	began(restart.Begun{ID: "1"})
	select {
	case <-end:
		d.asked()
		return restart.Exit{}
	case <-ctx.Done():
		return restart.Exit{Code: -1, Err: context.Cause(ctx)}
	}
}

// elsewhere is a driver of instances outside the engine.
type elsewhere struct{ endless }

func (elsewhere) SetFailed(func(error)) {}

// A restart is waiting for a store that does not respond when the engine is stopped. The processes of this host must be asked
// to exit immediately, and the engine must exit soon after them.
func TestProcessesAreStoppedAtOnceWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := idle(t), &silentStore{Local: coordtest.NewLocal()}
		d.flags = &flags{clusterName: "a"}
		d.openStore = func(config.Cluster) (Store, error) { return s, nil }
		var err error
		if d.cluster, err = d.openCluster(&config.Cluster{TTL: 5 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		if d.restarts, err = restart.New(restart.Config{Engine: d.engine, MayAct: d.cluster.mayRestart, IsShared: d.cluster.isShared}); err != nil {
			t.Fatal(err)
		}
		d.cluster.makeFleet(fleet.Config{Engine: d.engine, Restarts: d.restarts, Notices: notices{d.notifiers}, Logger: d.log}, config.Trust)
		d.cluster.pauses = pause.New(pause.Config{Engine: d.engine, Coordinator: d.cluster.coordinator, IsShared: d.cluster.isShared})
		var asked time.Time
		if err := d.restarts.Apply(map[string]restart.Unit{"own": {Driver: endless{func() { asked = time.Now() }}, Revision: "1"}}); err != nil {
			t.Fatal(err)
		}
		shared := fleet.Targets{
			Units: map[string]restart.Unit{"shared": {Driver: elsewhere{endless{func() { t.Error("the shared target was restarted") }}}, Revision: "1"}},
			Probes: probe.Set{{Target: "shared", Kind: probe.Liveness}: {
				Rule: probe.Rule{Period: time.Second, FailureThreshold: 1}, HandlerName: "test", Revision: "1",
				Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
					s.isAway.Store(true)
					return probe.Fail("test", "test")
				}),
			}},
		}
		d.cluster.inUse.Store(&desired{shared: shared})
		commit, err := d.cluster.fleet.Plan(shared)
		if err != nil {
			t.Fatal(err)
		}
		commit()
		serving, stopServing := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- d.engine.Run(serving) }()
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.runTargets(ctx) }()
		time.Sleep(3 * time.Second)
		if in, ok := d.engine.Target("shared"); !ok || in.Instance.Reason != probe.ReasonEnding {
			t.Fatalf("no restart waits for the store: %+v", in.Instance)
		}
		stopped := time.Now()
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := asked.Sub(stopped); asked.IsZero() || took > 0 {
			t.Errorf("the process was asked to exit %v after the engine", took)
		}
		if took := time.Since(stopped); took > 15*time.Second {
			t.Errorf("the engine has ended after %v", took)
		}
		stopServing()
		if err := <-served; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// The status shows the data last read from etcd: polling it once a second costs etcd nothing, and the status does not hang
// while etcd is unreachable.
func TestTheStatusOfAClusterDoesNotAskTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := idle(t), &silentStore{Local: coordtest.NewLocal()}
		d.flags = &flags{clusterName: "a"}
		d.openStore = func(config.Cluster) (Store, error) { return s, nil }
		var err error
		if d.cluster, err = d.openCluster(&config.Cluster{TTL: 5 * time.Second, Config: "etcd"}); err != nil {
			t.Fatal(err)
		}
		if d.restarts, err = restart.New(restart.Config{Engine: d.engine, MayAct: d.cluster.mayRestart}); err != nil {
			t.Fatal(err)
		}
		d.cluster.makeFleet(fleet.Config{Engine: d.engine, Restarts: d.restarts, Notices: notices{d.notifiers}, Logger: d.log}, config.Trust)
		d.cluster.pauses = pause.New(pause.Config{Engine: d.engine, Coordinator: d.cluster.coordinator, IsShared: d.cluster.isShared})
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.cluster.run(ctx) })
		defer running.Wait()
		defer end()
		time.Sleep(time.Minute + time.Millisecond) // the engine's own requests come at whole seconds
		synctest.Wait()
		check := func(when string) {
			t.Helper()
			before, began := s.ranges.Load(), time.Now()
			c := d.cluster.status()
			if n := s.ranges.Load() - before; n > 0 || time.Since(began) > 0 {
				t.Errorf("%s: %d requests and %v for a status", when, n, time.Since(began))
			}
			if len(c.Members) != 1 || c.Members[0].Revision == nil || *c.Members[0].Revision != 0 {
				t.Errorf("%s: the members are %+v", when, c.Members)
			}
		}
		check("while the store answers")
		s.isAway.Store(true)
		time.Sleep(time.Second) // the lease is still valid
		synctest.Wait()
		check("while it is away")
	})
}

// Two pushes follow each other before the fleet has removed the targets of the first one. The second push is not refused
// because of those targets.
func TestTargetsThatTheFleetIsAboutToRemoveDoNotCount(t *testing.T) {
	d := idle(t)
	d.flags = &flags{clusterName: "a"}
	d.openStore = func(config.Cluster) (Store, error) { return &silentStore{Local: coordtest.NewLocal()}, nil }
	var err error
	if d.cluster, err = d.openCluster(&config.Cluster{TTL: 5 * time.Second}); err != nil {
		t.Fatal(err)
	}
	if d.restarts, err = restart.New(restart.Config{Engine: d.engine, IsShared: d.cluster.isBrought}); err != nil {
		t.Fatal(err)
	}
	own := map[string]restart.Unit{"own": {}}
	if err := errors.Join(d.restarts.TakeOver(map[string]restart.Unit{"shared before": {}}, nil, nil), d.restarts.Apply(own)); err != nil {
		t.Fatal(err)
	}
	d.cluster.inUse.Store(&desired{units: own})
	if e := d.restarts.EffectOfApply(map[string]restart.Unit{}); e.Units != 1 || !slices.Equal(e.Removed, []string{"own"}) {
		t.Errorf("without its own target: %+v", e)
	}
}
