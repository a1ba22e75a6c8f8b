package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// every returns a probe with a period and a failure threshold.
func every(period time.Duration, failures int32, h probe.Handler) probe.Probe {
	p := with(h)
	p.Rule.Period, p.Rule.FailureThreshold = period, failures
	return p
}

// memories returns the memories of all probes of an engine.
func memories(e *engine.Engine) map[probe.ID]engine.Memory {
	all := map[probe.ID]engine.Memory{}
	for t := range e.Select(context.Background(), engine.Filter{}) {
		for i := range t.Probes {
			all[t.Probes[i].ID], _ = e.Snapshot(t.Probes[i].ID)
		}
	}
	return all
}

// successor returns an engine that resumes probes from their memories.
func successor(t *testing.T, set probe.Set, m map[probe.ID]engine.Memory) *engine.Engine {
	t.Helper()
	e := engine.New(engine.Config{})
	if changes, err := e.Change(engine.Change{Set: set, Memories: m}); err != nil || changes.Added != len(set) {
		t.Fatalf("got %+v, %v", changes, err)
	}
	return e
}

// history has the verdicts of each probe that a subscriber received.
type history struct {
	mu   sync.Mutex
	seen map[probe.ID][]probe.Verdict
}

// follow records each verdict that a subscriber receives, until the bubble ends.
func follow(t *testing.T, e *engine.Engine) *history {
	h := &history{seen: map[probe.ID][]probe.Verdict{}}
	sub := e.Subscribe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			st, err := sub.Next(ctx)
			if err != nil {
				return
			}
			h.mu.Lock()
			h.seen[st.ID] = append(h.seen[st.ID], st.Verdict)
			h.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-done; sub.Close() })
	return h
}

func (h *history) of(id probe.ID) []probe.Verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen[id]
}

func TestRestoredProbesNeverFlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, targets := probe.Set{}, 300
		for n := range targets {
			name := fmt.Sprintf("web-%d", n)
			for _, k := range []probe.Kind{probe.Startup, probe.Readiness, probe.Liveness} {
				set[probe.ID{Target: name, Kind: k}] = every(10*time.Second, 3, says(probe.Success))
			}
		}
		report := func(e *engine.Engine, since time.Time) {
			for n := range targets {
				e.Report(probe.Instance{Target: fmt.Sprintf("web-%d", n), ID: "static", Phase: probe.Running, Since: since})
			}
		}
		began := time.Now()
		first := engine.New(engine.Config{})
		apply(t, first, set)
		report(first, began)
		running(t, first, func() { pass(time.Minute) })

		for _, reportsFirst := range []bool{true, false} {
			second := engine.New(engine.Config{})
			seen := follow(t, second)
			if reportsFirst {
				report(second, began)
			}
			if _, err := second.Change(engine.Change{Set: set, Memories: memories(first)}); err != nil {
				t.Fatal(err)
			}
			for id := range set {
				if gauge, ok := second.Watch(id); !ok || !gauge.Passing() {
					t.Fatalf("%v: its gauge does not pass after Change", id)
				}
			}
			if !reportsFirst {
				report(second, began)
			}
			for st := range second.Select(context.Background(), engine.Filter{}) {
				if !st.Started || !st.Ready || !st.Live {
					t.Fatalf("got %+v after Change and Report", st)
				}
			}
			running(t, second, func() { pass(time.Minute) })
			for id := range set {
				for _, v := range seen.of(id) {
					if v != probe.Passing {
						t.Fatalf("%v: a subscriber saw %v", id, seen.of(id))
					}
				}
			}
			if st := second.Stats(); st.Attempts[0].Durations.Count() == 0 || len(st.Attempts) != 2 {
				t.Errorf("got attempts %+v, want some of readiness and liveness, and none of startup", st.Attempts)
			}
		}
	})
}

// TestNoReaderSeesARestoredProbeWithoutItsMemory reads each probe and each target as soon as Change has added it, while Change
// adds the next ones.
func TestNoReaderSeesARestoredProbeWithoutItsMemory(t *testing.T) {
	tier.Slow(t)
	m := engine.Memory{
		State:   verdict.State{Instance: "static", Verdict: probe.Passing, Last: probe.Success, Run: 1},
		Started: true,
	}
	e := engine.New(engine.Config{})
	change := engine.Change{Set: probe.Set{}, Memories: map[probe.ID]engine.Memory{}}
	var ids []probe.ID
	for n := range 50_000 {
		id := probe.ID{Target: fmt.Sprintf("web-%05d", n), Kind: probe.Readiness}
		ids = append(ids, id)
		change.Set[id], change.Memories[id] = with(says(probe.Success)), m
		e.Report(probe.Instance{Target: id.Target, ID: "static", Phase: probe.Running, Since: time.Now()})
	}
	var readers sync.WaitGroup
	readers.Go(func() {
		for _, id := range ids {
			st, ok := e.Status(id)
			for !ok {
				runtime.Gosched()
				st, ok = e.Status(id)
			}
			if st.Verdict != probe.Passing {
				t.Errorf("a reader saw %+v", st)
				return
			}
		}
	})
	readers.Go(func() {
		for _, id := range ids {
			st, _ := e.Target(id.Target)
			for len(st.Probes) == 0 {
				runtime.Gosched()
				st, _ = e.Target(id.Target)
			}
			if !st.Ready {
				t.Errorf("a reader saw %+v", st)
				return
			}
		}
	})
	if _, err := e.Change(change); err != nil {
		t.Fatal(err)
	}
	readers.Wait()
}

func TestARestoredRunGoesOn(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		set := probe.Set{liveness: every(10*time.Second, 3, h)}
		apply(t, e, set)
		e.Report(instance("a"))
		pass(time.Minute)
		h.say(probe.Failure)
		pass(20 * time.Second)
		if st := status(t, e, liveness); st.Run != 2 || st.Verdict != probe.Passing {
			t.Fatalf("got %+v", st)
		}
		before := status(t, e, liveness)
		second := successor(t, set, memories(e))
		running(t, second, func() {
			second.Report(instance("a"))
			synctest.Wait()
			want(t, second, liveness, probe.Passing)
			pass(10 * time.Second)
			st := status(t, second, liveness)
			if st.Verdict != probe.Failing || !st.OnHold || st.Changes != before.Changes+1 {
				t.Errorf("after one more failure: got %+v", st)
			}
		})
		third := successor(t, set, memories(second))
		running(t, third, func() {
			third.Report(instance("a"))
			pass(time.Minute)
			st, now := status(t, third, liveness), status(t, second, liveness)
			if !st.OnHold || st.Verdict != probe.Failing || !st.Since.Equal(now.Since) {
				t.Errorf("a hold does not go on: got %+v, want %+v", st, now)
			}
		})
	})
}

func TestARestoredProbeKnowsNothingAboutAnotherAddress(t *testing.T) {
	at := func(address string, port uint16) probe.Set {
		set := probe.Set{}
		for kind := probe.Readiness; kind <= probe.Liveness; kind++ {
			p := with(says(probe.Success))
			p.Target = probe.Target{Address: address, Ports: map[string]uint16{"http": port, "admin": 9000}}
			set[probe.ID{Target: "web", Kind: kind}] = p
		}
		return set
	}
	elsewhere := at("10.0.0.1", 80)
	for id, p := range elsewhere {
		p.Target.Network = &probe.Network{Namespace: "blue"}
		elsewhere[id] = p
	}
	var before map[probe.ID]engine.Memory
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		apply(t, e, at("10.0.0.1", 80))
		e.Report(instance("a"))
		pass(time.Minute)
		before = memories(e)
	})
	for _, test := range []struct {
		set  probe.Set
		want probe.Verdict
	}{
		{at("10.0.0.1", 80), probe.Passing},
		{at("10.0.0.2", 80), probe.Undecided},
		{at("10.0.0.1", 81), probe.Undecided},
		{elsewhere, probe.Undecided},
	} {
		e := successor(t, test.set, before)
		e.Report(instance("a"))
		for id := range test.set {
			want := test.want
			if id.Kind == probe.Liveness { // nothing is restarted because of another endpoint
				want = probe.Passing
			}
			if st := status(t, e, id); st.Verdict != want {
				t.Errorf("%v at %v is %v, want %v", id, test.set[id].Target, st.Verdict, want)
			}
		}
	}
}

func TestARestoredProbeKeepsItsRegularTimes(t *testing.T) {
	for name, c := range map[string]struct {
		memory func(engine.Memory) engine.Memory
		atOnce bool
	}{
		"with a run":     {func(m engine.Memory) engine.Memory { return m }, false},
		"without a run":  {func(m engine.Memory) engine.Memory { return m.Renewed(probe.Readiness) }, true},
		"with nothing":   {func(engine.Memory) engine.Memory { return engine.Memory{} }, true},
		"of another one": {func(m engine.Memory) engine.Memory { m.State.Instance = "earlier"; return m }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := says(probe.Success)
				set := probe.Set{readiness: every(10*time.Second, 3, h)}
				first := engine.New(engine.Config{})
				apply(t, first, set)
				running(t, first, func() {
					first.Report(instance("a"))
					pass(35 * time.Second)
				})
				before := h.attempts()
				last := before[len(before)-1]
				time.Sleep(time.Until(last.Add(13 * time.Second)))
				second := successor(t, set, map[probe.ID]engine.Memory{readiness: c.memory(memories(first)[readiness])})
				running(t, second, func() {
					second.Report(instance("a"))
					pass(8 * time.Second)
				})
				want := last.Add(20 * time.Second)
				if c.atOnce {
					want = last.Add(13 * time.Second)
				}
				if got := h.attempts()[len(before)]; !got.Equal(want) {
					t.Errorf("the first attempt is %v after the last one of the other engine, want %v", got.Sub(last), want.Sub(last))
				}
			})
		})
	}
}

func TestARestoredInstanceThatHasStartedStaysStarted(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		apply(t, e, probe.Set{readiness: with(says(probe.Success))})
		e.Report(instance("a"))
		pass(time.Minute)
		late := says(probe.Failure)
		set := probe.Set{readiness: with(says(probe.Success)), startup: with(late)}
		second := engine.New(engine.Config{})
		if _, err := second.Change(engine.Change{Set: set, Memories: memories(e)}); err != nil {
			t.Fatal(err)
		}
		running(t, second, func() {
			if st, _ := second.Target("web"); st.Started || st.Ready {
				t.Errorf("before a report: got %+v", st)
			}
			second.Report(instance("a"))
			pass(time.Minute)
			checkSums(t, second, sums{true, true, true})
			if n := len(late.attempts()); n != 0 {
				t.Errorf("the startup probe was attempted %d times", n)
			}
			second.Report(instance("b"))
			pass(time.Minute)
			checkSums(t, second, sums{false, false, false})
		})
	})
}

func TestATargetThatIsOnlyRememberedIsWarnedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testsync.Buffer
		e := engine.New(engine.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		m := engine.Memory{State: verdict.State{Instance: "a", Verdict: probe.Passing, Last: probe.Success, Run: 1}, Started: true}
		set := probe.Set{readiness: with(says(probe.Success))}
		if _, err := e.Change(engine.Change{Set: set, Memories: map[probe.ID]engine.Memory{readiness: m}}); err != nil {
			t.Fatal(err)
		}
		running(t, e, func() { pass(time.Minute) })
		if !strings.Contains(log.String(), "no instance was reported") {
			t.Errorf("got the log %q", log.String())
		}
	})
}

func TestAHandlerThatHasChangedMeanwhileStartsANewRun(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		revised := func(revision string) probe.Set {
			p := every(10*time.Second, 3, says(probe.Success))
			p.Revision = revision
			return probe.Set{readiness: p}
		}
		apply(t, e, revised("1"))
		e.Report(instance("a"))
		pass(time.Minute)
		known, unknown := memories(e), memories(e)
		m := unknown[readiness]
		m.Handler = 0
		unknown[readiness] = m
		for name, c := range map[string]struct {
			memories map[probe.ID]engine.Memory
			revision string
			renewed  bool
		}{
			"the same":           {known, "1", false},
			"another":            {known, "2", true},
			"without a revision": {known, "", true},
			"it was not revised": {unknown, "2", false},
		} {
			st := status(t, successor(t, revised(c.revision), c.memories), readiness)
			if st.Verdict != probe.Passing || (st.Run == 0) != c.renewed {
				t.Errorf("%s: got %v after a run of %d", name, st.Verdict, st.Run)
			}
		}
	})
}

func TestChangeLeavesOtherProbesAlone(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		apply(t, e, probe.Set{readiness: with(h), liveness: with(h)})
		e.Report(instance("a"))
		pass(time.Minute)
		before := status(t, e, liveness)
		other := probe.ID{Target: "db", Kind: probe.Readiness}
		old := engine.Memory{State: verdict.State{Instance: "old", Verdict: probe.Failing, Last: probe.Failure, Run: 9}}
		changes, err := e.Change(engine.Change{
			Set:      probe.Set{other: with(h), liveness: with(h)},
			Remove:   []probe.ID{readiness, readiness, startup},
			Memories: map[probe.ID]engine.Memory{liveness: old},
		})
		if want := (engine.Changes{Added: 1, Removed: 1, Kept: 1}); err != nil || changes != want {
			t.Errorf("got %+v, %v, want %+v", changes, err, want)
		}
		if _, ok := e.Status(readiness); ok {
			t.Error("the probe to be removed is there")
		}
		want(t, e, other, probe.Undecided)
		if st := status(t, e, liveness); st.Verdict != probe.Passing || st.Run != before.Run || st.Instance != "a" {
			t.Errorf("a memory changed a probe that exists: got %+v", st)
		}
	})
}

func TestAnInvalidChangeChangesNothing(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		apply(t, e, probe.Set{readiness: with(h)})
		held := engine.Memory{State: verdict.State{Instance: "a", Verdict: probe.Failing, Last: probe.Failure, OnHold: true}}
		named := func(name string) probe.ID { return probe.ID{Target: name, Kind: probe.Readiness} }
		for want, c := range map[string]engine.Change{
			`probe "db:readiness": invalid state: outcome without a run`: {
				Set:      probe.Set{named("db"): with(h), named("cache"): with(h)},
				Memories: map[probe.ID]engine.Memory{named("db"): held},
			},
			`memory of probe "db:readiness": the probe is not in Set`: {
				Memories: map[probe.ID]engine.Memory{named("db"): held},
			},
			`probe "db:readiness" is in both Set and Remove`: {
				Set: probe.Set{named("db"): with(h)}, Remove: []probe.ID{readiness, named("db")},
			},
			`probe "db:readiness": handler must not be nil`: {
				Set: probe.Set{named("db"): {}}, Remove: []probe.ID{readiness},
			},
		} {
			changes, err := e.Change(c)
			if err == nil || !strings.Contains(err.Error(), want) || changes != (engine.Changes{}) {
				t.Errorf("got %+v, %v, want the error %q", changes, err, want)
			}
		}
		if n := e.Stats().Probes; n != 1 {
			t.Errorf("there are %d probes, want 1", n)
		}
	})
}

func TestMemoryOfALongerThresholdDecidesWithTheNextAttempt(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		set := probe.Set{readiness: every(10*time.Second, 10, h)}
		apply(t, e, set)
		e.Report(instance("a"))
		pass(time.Minute)
		h.say(probe.Failure)
		pass(50 * time.Second)
		want(t, e, readiness, probe.Passing)
		second := successor(t, probe.Set{readiness: every(10*time.Second, 3, h)}, memories(e))
		running(t, second, func() {
			second.Report(instance("a"))
			synctest.Wait()
			if st := status(t, second, readiness); st.Verdict != probe.Passing || st.Run != 2 {
				t.Errorf("got %+v", st)
			}
			pass(10 * time.Second)
			want(t, second, readiness, probe.Failing)
		})
	})
}

func TestSubscribersToMemoriesSeeRunsBelowTheirThreshold(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		apply(t, e, probe.Set{readiness: every(10*time.Second, 3, h)})
		sub := e.SubscribeMemories()
		defer sub.Close()
		delivered := func() (n int) {
			done, cancel := context.WithCancel(t.Context())
			cancel()
			for {
				if _, err := sub.Next(done); err != nil {
					return n
				}
				n++
			}
		}
		e.Report(instance("a"))
		pass(time.Minute)
		if n := delivered(); n != 1 {
			t.Errorf("%d deliveries after the first verdict, want 1", n)
		}
		pass(time.Hour)
		if n := delivered(); n != 0 {
			t.Errorf("%d deliveries while the verdict was confirmed, want 0", n)
		}
		h.say(probe.Failure)
		for n := range int32(3) {
			pass(10 * time.Second)
			if m, _ := e.Snapshot(readiness); delivered() != 1 || m.State.Run != n+1 {
				t.Errorf("failure %d is not delivered: got %+v", n+1, m)
			}
		}
		pass(time.Hour)
		if n := delivered(); n != 0 {
			t.Errorf("%d deliveries while the verdict was confirmed, want 0", n)
		}
	})
}
