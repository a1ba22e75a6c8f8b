package cluster

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// awayStore is the store of the command: a Local that can become unreachable, for the command only.
type awayStore struct {
	*coordtest.Local
	isAway            atomic.Bool
	isAwayAfterCommit bool // it becomes unreachable after a commit
	unclaimed         int  // number of reads that show no claimed shards
}

var errAway = errors.New("no leader")

func (s *awayStore) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	if s.isAway.Load() {
		return nil, 0, errAway
	}
	entries, at, err := s.Local.Range(ctx, prefix)
	if s.unclaimed > 0 {
		s.unclaimed--
		entries = slices.DeleteFunc(entries, func(e coord.Entry) bool { return strings.Contains(e.Key, "/shard/") })
	}
	return entries, at, err
}

func (s *awayStore) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if s.isAwayAfterCommit {
		defer s.isAway.Store(true)
	}
	return s.Local.Commit(ctx, all...)
}

func (*awayStore) Close() error { return nil }

// join makes an engine that never gives up its shards a member, until end is called.
func join(t *testing.T, b coord.Backend, name string) (end func()) {
	t.Helper()
	co, err := coord.New(coord.Config{Name: name, Backend: b})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { co.Run(ctx) })
	time.Sleep(10 * time.Second)
	return func() { stop(); running.Wait() }
}

// drainedFleet is a fleet whose engine a is drained, while engine b could take its shards.
type drainedFleet struct {
	store     *awayStore
	leave     func() // stops engine a
	interrupt func() // interrupts the command
}

func TestADrainSucceedsOnlyIfTheEngineOwnsNoShards(t *testing.T) {
	tier.Slow(t)
	undrain := func(f *drainedFleet) { _, _ = coord.DeleteDrain(context.Background(), f.store.Local, "a") }
	tests := []struct {
		name              string
		timeout           time.Duration
		isAwayAfterCommit bool
		unclaimed         int
		meanwhile         func(*drainedFleet) // runs after a few seconds
		err, out          string
	}{
		{name: "without a wait", err: "a is drained but still owns 4096 shards; sonde-fleet cluster drain waits until it owns none", out: "a owns 4096 shards\n"},
		{name: "without a wait, store away", isAwayAfterCommit: true, err: "it is unknown whether it still owns shards: no leader"},
		{name: "late", timeout: 10 * time.Second, err: "a is drained but still owns 4096 shards after 10s", out: "a owns 4096 shards\n"},
		{
			name: "store away", timeout: 10 * time.Second, meanwhile: func(f *drainedFleet) { f.store.isAway.Store(true) },
			err: "a is drained, but it is unknown whether it still owns shards: no leader", out: "a owns 4096 shards\n",
		},
		{
			name: "store away for a while", timeout: time.Minute, isAwayAfterCommit: true,
			meanwhile: func(f *drainedFleet) { f.leave(); f.store.isAway.Store(false) }, out: "a is drained, and owns no shards\n",
		},
		{
			name: "interrupted", timeout: time.Minute, meanwhile: func(f *drainedFleet) { f.interrupt() },
			err: "interrupted: a is drained but may still own shards", out: "a owns 4096 shards\n",
		},
		{
			name: "undrained meanwhile", timeout: time.Minute, meanwhile: undrain,
			err: "a is no longer drained: an operator has undrained it meanwhile", out: "a owns 4096 shards\n",
		},
		{
			name: "has just joined", timeout: 10 * time.Second, unclaimed: 2, // the command reads before it drains
			err: "a is drained but still owns 4096 shards after 10s", out: "a owns 4096 shards\n",
		},
		{
			name: "left meanwhile", timeout: time.Minute, meanwhile: func(f *drainedFleet) { f.leave() },
			out: "a owns 4096 shards\na is drained, and owns no shards\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &drainedFleet{store: &awayStore{Local: coordtest.NewLocal(), isAwayAfterCommit: tt.isAwayAfterCommit, unclaimed: tt.unclaimed}}
				f.leave = join(t, f.store.Local, "a")
				defer f.leave()
				defer join(t, f.store.Local, "b")()
				var ctx context.Context
				ctx, f.interrupt = context.WithCancel(t.Context())
				defer f.interrupt()
				if tt.meanwhile != nil {
					defer time.AfterFunc(4500*time.Millisecond, func() { tt.meanwhile(f) }).Stop()
				}
				var out bytes.Buffer
				c := &cobra.Command{}
				c.SetContext(ctx)
				c.SetOut(&out)
				flags := drainFlags{timeout: tt.timeout}
				err := flags.drain(c, &store{Store: f.store, config: &config.Config{Cluster: &config.Cluster{}}}, "a")
				if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				if out.String() != tt.out {
					t.Errorf("written: %q, want %q", out.String(), tt.out)
				}
			})
		})
	}
}
