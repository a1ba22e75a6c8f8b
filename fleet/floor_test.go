package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// The number of members in the group of a service, and how many must be ready.
const (
	servers = 9
	needed  = 6
)

// startup is how long the next instance of a server takes to become ready.
const startup = 4 * time.Second

// service is the service that engines keep up: its servers are ready from some time after their start until they are
// terminated, even if they are sick.
type service struct {
	random *dice

	serviceMu sync.Mutex // guards all below
	servers   map[string]*server
	broken    map[string]bool // servers whose restart fails
	wrong     []string
	restarts  int
}

// server is an instance of a server.
type server struct {
	id          string
	n           int
	readyAt     time.Time
	sick        bool
	terminating int // number of drivers that are terminating it
	gone        chan struct{}
}

func newService(random *dice) *service {
	s := &service{random: random, servers: map[string]*server{}, broken: map[string]bool{}}
	for i := range servers {
		name := fmt.Sprint("server-", i)
		s.servers[name] = &server{id: name + "#0", gone: make(chan struct{})}
	}
	return s
}

func (s *service) get(name string) server {
	s.serviceMu.Lock()
	defer s.serviceMu.Unlock()
	return *s.servers[name]
}

func (s *service) infect(name string) {
	s.serviceMu.Lock()
	defer s.serviceMu.Unlock()
	s.servers[name].sick = true
}

// breakRestart makes the restarts of a server fail.
func (s *service) breakRestart(name string) {
	s.serviceMu.Lock()
	defer s.serviceMu.Unlock()
	s.broken[name] = true
}

func (s *service) isBroken(name string) bool {
	s.serviceMu.Lock()
	defer s.serviceMu.Unlock()
	return s.broken[name]
}

// sick returns the number of sick servers.
func (s *service) sick() (n int) {
	s.serviceMu.Lock()
	defer s.serviceMu.Unlock()
	for _, in := range s.servers {
		if in.sick {
			n++
		}
	}
	return n
}

// begin begins to terminate an instance, and records a violation if that leaves too few ready.
func (s *service) begin(engine, name, id string) {
	s.serviceMu.Lock()
	defer s.serviceMu.Unlock()
	if s.servers[name].id != id {
		return
	}
	s.servers[name].terminating++
	ready := 0
	for _, in := range s.servers {
		if in.terminating == 0 && !time.Now().Before(in.readyAt) {
			ready++
		}
	}
	if ready < needed {
		s.wrong = append(s.wrong, fmt.Sprintf("%s terminates %s, and leaves %d ready", engine, id, ready))
	}
}

// end finishes a termination: another instance follows, or this one keeps running.
func (s *service) end(name, id string, isReplaced bool) {
	s.serviceMu.Lock()
	defer s.serviceMu.Unlock()
	in := s.servers[name]
	if in.id != id {
		return
	}
	if in.terminating--; isReplaced {
		close(in.gone)
		s.restarts++
		s.servers[name] = &server{id: fmt.Sprintf("%s#%d", name, in.n+1), n: in.n + 1, readyAt: time.Now().Add(startup), gone: make(chan struct{})}
	}
}

// restartCommand is an engine's driver of a server. The effect of an interrupted command is random.
type restartCommand struct {
	*service
	engine, name string
	failed       *func(error)
}

// SetFailed implements restart.External.
func (c restartCommand) SetFailed(failed func(error)) { *c.failed = failed }

func (c restartCommand) Resume(id string) bool { return c.get(c.name).id == id }

func (c restartCommand) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	in := c.get(c.name)
	began(restart.Begun{ID: in.id})
	for isAsked := false; !isAsked; {
		select {
		case <-end:
			if isAsked = !c.isBroken(c.name); !isAsked {
				(*c.failed)(errors.New("exit status 1"))
			}
		case <-in.gone:
			return restart.Exit{Code: 143}
		case <-ctx.Done():
			return restart.Exit{Code: -1, Err: context.Cause(ctx)}
		}
	}
	c.begin(c.engine, c.name, in.id)
	took := time.NewTimer(c.random.upTo(3 * time.Second))
	defer took.Stop()
	select {
	case <-took.C:
		c.end(c.name, in.id, true)
		return restart.Exit{}
	case <-in.gone:
		return restart.Exit{Code: 143}
	case <-ctx.Done():
		c.end(c.name, in.id, c.random.in(2))
		return restart.Exit{Code: -1, Err: context.Cause(ctx)}
	}
}

func (s *service) targets(engine string) fleet.Targets {
	t := fleet.Targets{Probes: probe.Set{}, Units: map[string]restart.Unit{}}
	for i := range servers {
		name := fmt.Sprint("server-", i)
		p := func(fails func() bool) probe.Probe {
			return probe.Probe{
				Rule: probe.Rule{Period: time.Second, FailureThreshold: 2}, HandlerName: "test", Revision: "1",
				Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
					if fails() {
						return probe.Fail("test.failing", "")
					}
					return probe.Result{Outcome: probe.Success}
				}),
			}
		}
		t.Probes[probe.ID{Target: name, Kind: probe.Liveness}] = p(func() bool { return s.get(name).sick })
		t.Probes[probe.ID{Target: name, Kind: probe.Readiness}] = p(func() bool { return time.Now().Before(s.get(name).readyAt) })
		t.Units[name] = restart.Unit{
			Driver: restartCommand{s, engine, name, new(func(error))}, Revision: "1", TerminationGracePeriod: 5 * time.Second,
			BackOff: restart.BackOff{Initial: time.Second, Max: 5 * time.Second},
		}
	}
	return t
}

// precautions are the precautions in force that make a floor hold across engines.
type precautions struct {
	generation bool // a reservation requires that no other was made since they were read
	reserved   bool // reserved members do not count as ready
	lasts      bool // reservations outlive their acts
}

// floored is a coord.Backend without some precautions.
type floored struct {
	*faulty
	with precautions
}

func (f *floored) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	for i, t := range all {
		if !f.with.generation && isReservation(t.Then[0]) {
			all[i].If = slices.DeleteFunc(slices.Clone(t.If), func(c coord.Condition) bool { return strings.HasPrefix(c.Key, "floor/") })
		}
	}
	made, err := f.faulty.Commit(ctx, all...)
	if change := all[0].Then[0]; !f.with.lasts && strings.HasPrefix(change.Key, "act/") && strings.Contains(string(change.Value), `"done":true`) {
		e, _ := f.Get(ctx, "floor/service")
		instances := map[string]string{}
		_ = json.Unmarshal(e.Value, &instances)
		delete(instances, change.Key[strings.LastIndex(change.Key, "/")+1:])
		value, _ := json.Marshal(instances)
		_, _ = f.faulty.Commit(ctx, coord.Transaction{Then: []coord.Change{{Key: "floor/service", Value: value}}})
	}
	return made, err
}

// reservations returns the instances with reserved restarts, by target.
func reservations(t *testing.T, b coord.Backend) (instances map[string]string) {
	t.Helper()
	e, err := b.Get(t.Context(), "floor/service")
	if err == nil && e.Created != 0 {
		err = json.Unmarshal(e.Value, &instances)
	}
	if err != nil {
		t.Fatal(err)
	}
	return instances
}

// start starts an engine that keeps the service up.
func (s *service) start(t *testing.T, name string, b coord.Backend, with precautions) *member {
	f := &faulty{with: safeguards{deadline: true, guard: true, evidence: true}, random: s.random, clock: true}
	f.Backend = b
	m := startWith(t, coord.Config{Name: name, Backend: &floored{f, with}}, &f.cutOff, s.targets(name))
	m.faults = f
	m.ignoresReservations.Store(!with.reserved)
	all, err := probe.NewSelector([]string{"server-*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rule := group.Rule{Members: all, HoldRestarts: true}
	if err := rule.MinReady.UnmarshalText([]byte(fmt.Sprint(needed))); err != nil {
		t.Fatal(err)
	}
	m.runGroups(map[string]group.Rule{"service": rule})
	return m
}

// runGroups runs groups of an engine until the test ends.
func (m *member) runGroups(rules map[string]group.Rule) {
	m.Helper()
	if err := m.groups.Apply(rules); err != nil {
		m.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = m.groups.Run(ctx) })
	m.Cleanup(func() { cancel(); running.Wait() })
}

// runFloor runs three engines with random faults while servers turn sick, many of them together. It returns the restarts
// that have left too few servers ready, and servers that were not restarted in the end.
func runFloor(t *testing.T, seed uint64, with precautions) []string {
	isMutation := with != allPrecautions
	random := &dice{r: rand.New(rand.NewPCG(seed, 3))}
	s, b := newService(random), coordtest.NewLocal()
	n := 0
	launch := func() *member {
		n++
		return s.start(t, fmt.Sprint("engine-", n), b, with)
	}
	engines := []*member{launch(), launch(), launch()}
	time.Sleep(30 * time.Second)
	for range 8 {
		for i := range servers {
			if isMutation || !random.in(4) {
				s.infect(fmt.Sprint("server-", i))
			}
		}
		time.Sleep(random.upTo(10 * time.Second))
		if isMutation { // working engines contend the most
			time.Sleep(random.upTo(40 * time.Second))
			continue
		}
		at := int(random.upTo(3))
		switch victim := engines[at]; random.upTo(4) {
		case 0:
			victim.faults.pause(random.upTo(20 * time.Second))
		case 1:
			victim.backend.isCut.Store(true)
			time.AfterFunc(random.upTo(20*time.Second), func() { victim.backend.isCut.Store(false) })
		case 2:
			victim.kill()
			engines[at] = launch()
		}
		time.Sleep(random.upTo(40 * time.Second))
	}
	random.isCalm.Store(true)
	isOver := func() bool { return s.sick() == 0 && len(reservations(t, b)) == 0 }
	for range 100 {
		if isMutation || isOver() {
			break
		}
		time.Sleep(10 * time.Second)
	}
	s.serviceMu.Lock()
	wrong, restarts := s.wrong, s.restarts
	s.serviceMu.Unlock()
	if !isOver() || restarts < servers {
		wrong = append(wrong, fmt.Sprintf("after %d restarts %d servers are sick, %v", restarts, s.sick(), reservations(t, b)))
	}
	return wrong
}

var allPrecautions = precautions{generation: true, reserved: true, lasts: true}

func TestAFloorHoldsAcrossEngines(t *testing.T) {
	tier.CI(t)
	for seed := range uint64(max(1, runs()/2)) {
		var wrong []string
		synctest.Test(t, func(t *testing.T) { wrong = runFloor(t, seed, allPrecautions) })
		if len(wrong) > 0 {
			t.Errorf("seed %d:\n%s", seed, strings.Join(wrong, "\n"))
		}
	}
}

// Without one of the precautions the same runs must fail.
func TestAFloorDoesNotHoldWithoutAPrecaution(t *testing.T) {
	tier.Long(t)
	for name, with := range map[string]precautions{
		"no generation":      {reserved: true, lasts: true},
		"reserved count":     {generation: true, lasts: true},
		"released too early": {generation: true, reserved: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(planted) {
				var wrong []string
				synctest.Test(t, func(t *testing.T) { wrong = runFloor(t, seed, with) })
				if strings.Contains(strings.Join(wrong, "\n"), "and leaves") {
					t.Logf("seed %d: %s", seed, strings.Join(wrong, "\n"))
					return
				}
			}
			t.Error("no run shows that the precaution is needed")
		})
	}
}

// contended is a coord.Backend that is slow once it is armed: it commits nothing until all engines have requested a
// reservation.
type contended struct {
	coord.Backend
	engines int64
	isArmed atomic.Bool
	asked   atomic.Int64
	all     chan struct{} // closed when they have requested one
}

func (c *contended) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if c.isArmed.Load() {
		for _, t := range all {
			if slices.ContainsFunc(t.Then, isReservation) && c.asked.Add(1) == c.engines {
				close(c.all)
			}
		}
		select {
		case <-c.all:
		case <-ctx.Done():
		}
	}
	return c.Backend.Commit(ctx, all...)
}

func isReservation(c coord.Change) bool { return strings.HasPrefix(c.Key, "floor/") }

// startTrio starts three engines, each with one server of a group of which two must be ready. It returns the servers
// too.
func (s *service) startTrio(t *testing.T, b coord.Backend) (engines []*member, names []string) {
	for i := range 3 {
		engines = append(engines, s.start(t, fmt.Sprint("engine-", i), b, allPrecautions))
	}
	time.Sleep(time.Minute)
	for _, m := range engines {
		for i := range servers {
			if name := fmt.Sprint("server-", i); m.owns(name) {
				names = append(names, name)
				break
			}
		}
	}
	if len(names) != len(engines) {
		t.Fatalf("an engine owns no server: %v", names)
	}
	trio, err := probe.NewSelector(names, nil)
	if err != nil {
		t.Fatal(err)
	}
	rule := group.Rule{Members: trio, HoldRestarts: true}
	if err := rule.MinReady.UnmarshalText([]byte("2")); err != nil {
		t.Fatal(err)
	}
	for _, m := range engines {
		if err := m.groups.Apply(map[string]group.Rule{"trio": rule}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(10 * time.Second)
	return engines, names
}

// owns reports whether an engine owns a target.
func (m *member) owns(target string) bool {
	_, isOwn := m.engine.Target(target)
	return isOwn
}

// checkDraining checks for some time that engines agree on which servers drain, except for two seconds after a change.
// It returns how often owners have shown a server as ready though its liveness probe fails.
func checkDraining(t *testing.T, s *service, engines []*member, names []string, lasting time.Duration) (ready int) {
	t.Helper()
	differ := map[string]int{}
	for range int(lasting / time.Second) {
		time.Sleep(time.Second)
		for i, name := range names {
			own, _ := engines[i].seen(name)
			if s.get(name).sick && own.Gateway.TakesRequests() {
				ready++
			}
			for _, other := range engines {
				key := other.co.Name() + " " + name
				if st, _ := other.seen(name); (st.Gateway == probe.GatewayDraining) == (own.Gateway == probe.GatewayDraining) {
					differ[key] = 0
				} else if differ[key]++; differ[key] == 3 {
					t.Errorf("%s shows %s as %v, but its owner as %v", other.co.Name(), name, st.Gateway, own.Gateway)
				}
			}
		}
	}
	return ready
}

// Three engines request a restart at the same time, and one may restart its server. The other servers stay ready in all
// engines until it is their turn.
func TestAMemberWhoseRestartIsWithheldIsReadyInAllEngines(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		s := newService(&dice{r: rand.New(rand.NewPCG(1, 1))})
		s.random.isCalm.Store(true)
		b := &contended{Backend: coordtest.NewLocal(), engines: 3, all: make(chan struct{})}
		engines, names := s.startTrio(t, b)
		b.isArmed.Store(true)
		for _, name := range names {
			s.infect(name)
		}
		if checkDraining(t, s, engines, names, 5*time.Minute) == 0 || b.asked.Load() < b.engines {
			t.Errorf("no restart was withheld: %d reservations", b.asked.Load())
		}
		for _, name := range names {
			if s.get(name).n != 1 {
				t.Errorf("%s was restarted %d times", name, s.get(name).n)
			}
		}
	})
}

// A member whose restart has failed serves until the next try, and counts as ready in all engines.
func TestAMemberWhoseRestartFailsIsReadyInAllEngines(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		s := newService(&dice{r: rand.New(rand.NewPCG(1, 1))})
		s.random.isCalm.Store(true)
		engines, names := s.startTrio(t, coordtest.NewLocal())
		s.breakRestart(names[2])
		s.infect(names[2])
		if checkDraining(t, s, engines, names, 5*time.Minute) < 10 {
			t.Error("its owner never shows it as ready")
		}
	})
}

// The owner of a server exits during its restart: the reservation stays until the next owner has seen another instance
// become ready.
func TestAReservationOutlivesItsEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newService(&dice{r: rand.New(rand.NewPCG(1, 1))}), coordtest.NewLocal()
		one := s.start(t, "one", b, allPrecautions)
		time.Sleep(30 * time.Second)
		s.infect("server-0")
		for len(reservations(t, b)) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		one.kill()
		time.Sleep(time.Minute)
		if left := reservations(t, b); len(left) != 1 {
			t.Errorf("reservations: %v", left)
		}
		s.start(t, "two", b, allPrecautions)
		time.Sleep(2 * time.Minute)
		if left := reservations(t, b); len(left) > 0 || s.get("server-0").n != 1 {
			t.Errorf("reservations: %v, instance %s", left, s.get("server-0").id)
		}
	})
}

// Reservations of removed targets are deleted, if they can be read.
func TestReservationsOfTargetsThatAreGoneAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newService(&dice{r: rand.New(rand.NewPCG(1, 1))}), coordtest.NewLocal()
		one := s.start(t, "one", b, allPrecautions)
		time.Sleep(30 * time.Second)
		gone := coord.Change{Key: "floor/service", Value: []byte(`{"gone":"gone#0"}`)}
		if made, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{gone}}); err != nil || !made[0] {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if left := reservations(t, b); len(left) > 0 {
			t.Errorf("reservations are left: %v, owner of shard %v: %v", left, shard.Of("gone"), one.co.OwnerOf("gone"))
		}
		unreadable := coord.Change{Key: "floor/service", Value: []byte(`{"gone":{}}`)}
		for _, change := range []coord.Change{gone, unreadable} {
			if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{change}}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		if e, err := b.Get(t.Context(), "floor/service"); err != nil || string(e.Value) != string(unreadable.Value) {
			t.Errorf("reservations that cannot be read are replaced by %s, %v", e.Value, err)
		}
	})
}
