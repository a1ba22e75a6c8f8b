package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// cutOff is the coord.Backend of one engine, which can be cut off from the store.
type cutOff struct {
	coord.Backend
	isCut       atomic.Bool
	isForgetful atomic.Bool // no memories are stored
	isRefusing  atomic.Bool // memories cannot be read
	isSilent    atomic.Bool // watches do not show changes of memories and votes if they began before it was unset
	isSlow      atomic.Bool // changes of votes take a second
	isLazy      atomic.Bool // leases are kept alive half a second late

	loads, refused         atomic.Int64 // requests that read memories, and those that failed because of isRefusing
	reads, writes, written atomic.Int64 // requests that read entries, requests that change them, and bytes of their values
}

var (
	errCut     = errors.New("cut off")
	errRefused = errors.New("too many requests")
)

func (c *cutOff) err() error {
	if c.isCut.Load() {
		return errCut
	}
	return nil
}

func (c *cutOff) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	if err := c.err(); err != nil {
		return 0, err
	}
	return c.Backend.Grant(ctx, ttl)
}

func (c *cutOff) KeepAlive(ctx context.Context, l coord.Lease) error {
	if c.isLazy.Load() {
		time.Sleep(500 * time.Millisecond)
	}
	if err := c.err(); err != nil {
		return err
	}
	return c.Backend.KeepAlive(ctx, l)
}

func (c *cutOff) Revoke(ctx context.Context, l coord.Lease) error {
	if err := c.err(); err != nil {
		return err
	}
	return c.Backend.Revoke(ctx, l)
}

func (c *cutOff) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	if c.isForgetful.Load() && strings.HasPrefix(all[0].Then[0].Key, "memory/") {
		return nil, errCut
	}
	if c.isSlow.Load() && strings.HasPrefix(all[0].Then[0].Key, "vote/") {
		time.Sleep(time.Second)
	}
	c.writes.Add(1)
	for _, t := range all {
		for _, change := range t.Then {
			c.written.Add(int64(len(change.Value)))
		}
	}
	return c.Backend.Commit(ctx, all...)
}

func (c *cutOff) Get(ctx context.Context, key string) (coord.Entry, error) {
	if err := c.err(); err != nil {
		return coord.Entry{}, err
	}
	c.reads.Add(1)
	return c.Backend.Get(ctx, key)
}

func (c *cutOff) RangeAll(ctx context.Context, prefixes ...string) ([][]coord.Entry, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	isLoad := strings.HasPrefix(prefixes[0], "memory/")
	if err := c.refuse(ctx, prefixes[0]); err != nil {
		return nil, err
	}
	c.reads.Add(1)
	if isLoad {
		c.loads.Add(1)
	}
	return c.Backend.RangeAll(ctx, prefixes...)
}

// refuse returns the error of a request that reads memories, if it must fail.
func (c *cutOff) refuse(ctx context.Context, prefix string) error {
	if !strings.HasPrefix(prefix, "memory/") || !c.isRefusing.Load() {
		return nil
	}
	if c.refused.Add(1) > 1000 {
		<-ctx.Done() // otherwise the fake time of a test would not advance
	}
	return errRefused
}

func (c *cutOff) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	if err := c.err(); err != nil {
		return nil, 0, err
	}
	if err := c.refuse(ctx, prefix); err != nil {
		return nil, 0, err
	}
	c.reads.Add(1)
	return c.Backend.Range(ctx, prefix)
}

func (c *cutOff) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	return func(yield func([]coord.Event, error) bool) {
		isSilent := false
		for events, err := range c.Backend.Watch(ctx, prefix, after) {
			if c.isCut.Load() {
				err = errCut
			}
			if isSilent = isSilent || c.isSilent.Load() && (prefix == "memory/" || prefix == "vote/"); isSilent && err == nil {
				continue
			}
			if !yield(events, err) || err != nil {
				return
			}
		}
	}
}

// member is an engine of a fleet, assembled as in a program.
type member struct {
	*testing.T
	engine   *engine.Engine
	restarts *restart.Controller
	co       *coord.Coordinator
	fleet    *fleet.Fleet
	backend  *cutOff
	faults   *faulty         // of a run with random faults
	stop     func()          // leaves the fleet, and waits until it has left
	log      testsync.Buffer // warnings of its fleet
	failures atomic.Pointer[[]string]
	groups   *group.Groups // groups of this engine's view; empty until a test applies some, and runs them
	notices  notices

	ignoresReservations atomic.Bool // reserved targets count as ready

	ignoresEvidence atomic.Bool // it restarts for a joint failure without evidence
}

func start(t *testing.T, name string, b coord.Backend, targets fleet.Targets) *member {
	t.Helper()
	return resume(t, name, b, targets, fleet.Trust)
}

// resume is start with a Resume for stored memories.
func resume(t *testing.T, name string, b coord.Backend, targets fleet.Targets, how fleet.Resume) *member {
	t.Helper()
	return resumeWith(t, name, &cutOff{Backend: b}, targets, how)
}

// resumeWith is resume with a store that can be cut off.
func resumeWith(t *testing.T, name string, cut *cutOff, targets fleet.Targets, how fleet.Resume) *member {
	t.Helper()
	return launch(t, coord.Config{Name: name, Backend: cut, MaxAge: store.DefaultMaxAge}, cut, targets, how)
}

// startRefused starts an engine that can load no memories.
func startRefused(t *testing.T, name string, b coord.Backend, targets fleet.Targets) *member {
	t.Helper()
	cut := &cutOff{Backend: b}
	cut.isRefusing.Store(true)
	return resumeWith(t, name, cut, targets, fleet.Trust)
}

// startWith starts an engine whose store can be cut off.
func startWith(t *testing.T, c coord.Config, cut *cutOff, targets fleet.Targets) *member {
	t.Helper()
	return launch(t, c, cut, targets, fleet.Trust)
}

func launch(t *testing.T, c coord.Config, cut *cutOff, targets fleet.Targets, how fleet.Resume) *member {
	t.Helper()
	m := &member{T: t, engine: engine.New(engine.Config{}), backend: cut}
	m.failures.Store(new([]string))
	m.notices.member = m
	var err error
	if m.co, err = coord.New(c); err != nil {
		t.Fatal(err)
	}
	restarts, err := restart.New(restart.Config{Engine: m.engine, MayAct: m.mayRestart, Disruptions: m})
	if err != nil {
		t.Fatal(err)
	}
	m.restarts = restarts
	warnings := slog.New(slog.NewTextHandler(&m.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	m.fleet = fleet.New(fleet.Config{Coordinator: m.co, Engine: m.engine, Restarts: restarts, Resume: how, Floor: m, Notices: &m.notices, Zone: "zone-" + c.Name, Logger: warnings})
	m.groups = group.New(group.Config{Engine: m.fleet.Union(), Reserved: m.reserved})
	if _, err := m.engine.Change(engine.Change{Dampings: targets.Dampings}); err != nil {
		t.Fatal(err)
	}
	if err := m.fleet.Apply(targets); err != nil {
		t.Fatal(err)
	}
	runs := []func(context.Context){
		m.record, m.fleet.Run, m.co.Run, // they end in this order
		func(ctx context.Context) { _ = restarts.Run(ctx) },
		func(ctx context.Context) { _ = m.engine.Run(ctx) },
	}
	var ends []func()
	for _, run := range runs {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { run(ctx) })
		ends = append(ends, func() { cancel(); running.Wait() })
	}
	m.stop = func() {
		for _, end := range ends {
			end()
		}
	}
	t.Cleanup(func() { m.stop() })
	return m
}

// Acquire, Release, Floors and WithheldBy implement restart.DisruptionBudget and fleet.Floor.
func (m *member) Acquire(target, instance string, forced bool) string {
	return m.groups.Acquire(target, instance, forced)
}

func (m *member) Release(target string) { m.groups.Release(target) }

func (m *member) Floors(target string) []string { return m.groups.Floors(target) }

func (m *member) WithheldBy(target string) string { return m.groups.WithheldBy(target) }

func (m *member) reserved(name string) []string {
	if m.ignoresReservations.Load() {
		return nil
	}
	return m.fleet.Reserved(name)
}

// mayRestart reports whether the engine may restart a target.
func (m *member) mayRestart(target string) bool {
	return m.fleet.MayRestart(target) || m.ignoresEvidence.Load() && m.fleet.MayAct(target)
}

// record records the probes that are published as not passing.
func (m *member) record(ctx context.Context) {
	sub := m.engine.Subscribe()
	defer sub.Close()
	for {
		s, err := sub.Next(ctx)
		if err != nil {
			return
		}
		if !s.Removed && s.Verdict != probe.Passing {
			all := append(*m.failures.Load(), fmt.Sprintf("%v %v of %s", s.ID, s.Verdict, s.Instance))
			m.failures.Store(&all)
		}
	}
}

// forget discards the recorded failures.
func (m *member) forget() { m.failures.Store(new([]string)) }

// kill stops the engine without notice to the others.
func (m *member) kill() {
	m.backend.isCut.Store(true)
	m.stop()
}

// probes counts the probes of an engine.
func (m *member) probes() (n int) { return m.engine.Stats().Probes }
