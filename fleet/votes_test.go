package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// A target belongs only to its owner's engine: the other vantages only vote on it.
func TestATargetIsInTheEngineOfItsOwnerOnly(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		j := startJury(t, 3, quorum.Rule{})
		for i := range watched {
			target, owners := fmt.Sprintf("shop/web-%d", i), 0
			for _, m := range j.members {
				if _, ok := m.engine.Target(target); ok {
					owners++
				}
			}
			if owners != 1 {
				t.Errorf("%s is in %d engines", target, owners)
			}
		}
		for _, m := range j.members {
			if n := m.fleet.Quorum().Polls; n != watched*3/2 {
				t.Errorf("%s attempts %d probes", m.co.Name(), n)
			}
			if n := m.engine.Stats().Probes; n != m.probes() {
				t.Errorf("%s counts %d probes, and has %d", m.co.Name(), n, m.probes())
			}
		}
	})
}

// put puts an entry, as any program can that may write to the store.
func put(t *testing.T, b coord.Backend, key, value string) {
	t.Helper()
	if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: key, Value: []byte(value)}}}); err != nil {
		t.Fatal(err)
	}
}

// Three of five engines are chosen. Votes of the other two, votes of engines that do not exist, votes that cannot be
// read, and votes under the name of another engine change nothing, and are not among the ignored ones.
func TestOnlyVotesOfChosenVantagesCount(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		j := startJury(t, 5, quorum.Rule{})
		failing := `{"instance":"static","lease":0,"votes":[{"poll":"r/","verdict":"failing"}]}`
		for i := range watched {
			target := fmt.Sprintf("shop/web-%d", i)
			for k := range 20 {
				put(t, j.backend, fmt.Sprintf("vote/nobody-%d/%s", k, target), failing)
			}
			for _, m := range j.members {
				put(t, j.backend, "vote/"+m.co.Name()+"/"+target, failing)
			}
		}
		for _, key := range []string{"vote/", "vote//", "vote//shop/web-1", "vote/engine-1/", "vote/engine-1/none", "vote/x/shop/web-1"} {
			put(t, j.backend, key, "?")
		}
		time.Sleep(time.Minute)
		j.expectPeace("twenty vote that do not exist")
		if _, unanimous := j.count(probe.Passing, "passing at 3 vantages"); unanimous != watched*3/2 {
			t.Errorf("%d probes are decided by three", unanimous)
		}
		if passing, ignored := j.count(probe.Passing, "not counted"); passing != watched*3/2 || ignored > 0 {
			t.Errorf("%d pass, and %d ignore some votes", passing, ignored)
		}
		for _, key := range entries(t, j.backend, "vote/engine-1/") {
			e, err := j.backend.Get(t.Context(), key)
			if key != "vote/engine-1/" && (err != nil || strings.Contains(string(e.Value), "failing") || string(e.Value) == "?") {
				t.Errorf("%s stays %s", key, e.Value)
			}
		}
	})
}

// The owner of targets dies, and fewer vantages remain than must vote: the next owner publishes the same verdicts,
// failing or passing, whatever has happened to the targets since.
func TestAJointVerdictStandsAfterATakeover(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		j := startJury(t, 3, quorum.Rule{Min: 3})
		for i := 1; i < watched; i += 4 { // some of those without a driver
			j.world.infect(fmt.Sprintf("shop/web-%d", i), 0)
		}
		time.Sleep(time.Minute)
		j.members[1].kill()
		taken := 0
		for i := 1; i < watched; i += 2 {
			if _, ok := j.members[1].engine.Target(fmt.Sprintf("shop/web-%d", i)); ok {
				taken++
			}
		}
		j.members = []*member{j.members[0], j.members[2]}
		time.Sleep(2 * coord.DefaultTTL)
		j.world.healAll()
		for i := 3; i < watched; i += 4 {
			j.world.infect(fmt.Sprintf("shop/web-%d", i), 0)
		}
		time.Sleep(time.Minute)
		for i := 1; i < watched; i += 2 {
			target := fmt.Sprintf("shop/web-%d", i)
			want := probe.Passing
			if i%4 == 1 {
				want = probe.Failing
			}
			st, _ := j.owner(target).engine.Status(probe.ID{Target: target, Kind: probe.Readiness})
			if st.Verdict != want || !st.Decided || !strings.HasPrefix(st.Result.Detail, "2 votes count, and 3 are needed") {
				t.Errorf("%s is %v, want %v: %s", target, st.Verdict, want, st.Result.Detail)
			}
		}
		if taken == 0 {
			t.Error("no target was taken over: the test shows nothing")
		}
	})
}

func TestOnlyChangesOfVotesAreWritten(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		j := startJury(t, 3, quorum.Rule{})
		latest := func() (r coord.Revision) {
			all, _, err := j.backend.Range(t.Context(), "vote/")
			if err != nil || len(all) == 0 {
				t.Fatalf("there are %d entries, %v", len(all), err)
			}
			for _, e := range all {
				r = max(r, e.Modified)
			}
			return r
		}
		before := latest()
		time.Sleep(time.Hour)
		if after := latest(); after != before {
			t.Errorf("a vote was written by revision %d, in an hour in which nothing has changed since %d", after, before)
		}
		j.members[0].co.Drain(true)
		time.Sleep(time.Minute)
		if latest() == before {
			t.Error("a drained engine has written nothing")
		}
	})
}

// busy is a Backend that counts the requests that change votes.
type busy struct {
	*coordtest.Local
	countMu  sync.Mutex // guards all below
	requests int
}

func (b *busy) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if strings.HasPrefix(all[0].Then[0].Key, "vote/") {
		b.countMu.Lock()
		b.requests++
		b.countMu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	return b.Local.Commit(ctx, all...)
}

// alone gives targets quorums of one engine.
func alone(targets fleet.Targets) fleet.Targets {
	targets.Quorums = map[probe.ID]quorum.Rule{}
	for id := range targets.Probes {
		targets.Quorums[id] = quorum.Rule{Min: 1}
	}
	return targets
}

func TestVotesArePutInBatches(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		b, w := &busy{Local: coordtest.NewLocal()}, newWorld()
		const targets = 1000
		start(t, "a", b, alone(w.targets(targets)))
		time.Sleep(time.Minute)
		if n := len(entries(t, b, "vote/a/")); n != targets {
			t.Errorf("%d ballots were put", n)
		}
		// A ballot is put undecided, and again when the target is decided; attempts are spread over a second.
		if b.requests > 2*(targets/coord.MaxTransactions)+100 {
			t.Errorf("by %d requests", b.requests)
		}
	})
}

// delayed is a Backend on which the next request that changes a ballot can be delayed.
type delayed struct {
	*coordtest.Local
	delayedMu sync.Mutex // guards all below
	isNext    bool
	late      []coord.Transaction
}

func (d *delayed) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	d.delayedMu.Lock()
	defer d.delayedMu.Unlock()
	if d.isNext && strings.HasPrefix(all[0].Then[0].Key, "vote/a/") {
		d.isNext, d.late = false, all
		return nil, errCut
	}
	return d.Local.Commit(ctx, all...)
}

// delay delays the next request.
func (d *delayed) delay() {
	d.delayedMu.Lock()
	defer d.delayedMu.Unlock()
	d.isNext = true
}

// deliver delivers the delayed request.
func (d *delayed) deliver(t *testing.T) {
	t.Helper()
	d.delayedMu.Lock()
	defer d.delayedMu.Unlock()
	if d.late == nil {
		t.Fatal("no request was sent")
	}
	if _, err := d.Local.Commit(t.Context(), d.late...); err != nil {
		t.Fatal(err)
	}
}

// A request without a response is executed late, after a newer one: it changes nothing.
func TestAVoteThatComesLateChangesNothing(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		b, w := &delayed{Local: coordtest.NewLocal()}, newWorld()
		const target = "shop/web-1"
		targets := alone(w.targets(2))
		one := start(t, "a", b, targets)
		time.Sleep(time.Minute)
		expect := func(when, want string) {
			t.Helper()
			e, err := b.Get(t.Context(), "vote/a/"+target)
			var said struct{ Votes []struct{ Verdict string } }
			switch {
			case want == "" && e.Created == 0 && err == nil:
			case err != nil || json.Unmarshal(e.Value, &said) != nil || len(said.Votes) != 1 || said.Votes[0].Verdict != want:
				t.Errorf("%s: the ballot is %q, want %s", when, e.Value, want)
			}
		}
		expect("in the beginning", "passing")
		b.delay()
		w.infect(target, 0)
		time.Sleep(2500 * time.Millisecond)
		w.heal(target)
		time.Sleep(time.Minute)
		b.deliver(t)
		expect("with a late request", "passing")
		time.Sleep(time.Minute)
		expect("after that", "passing")
		if st, _ := one.engine.Status(probe.ID{Target: target, Kind: probe.Readiness}); st.Verdict != probe.Passing {
			t.Errorf("it is %v: %s", st.Verdict, st.Result.Detail)
		}
		b.delay()
		delete(targets.Quorums, probe.ID{Target: target, Kind: probe.Readiness})
		if err := one.fleet.Apply(targets); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		expect("a request to delete it had no answer", "")
	})
}

// refusing is a Backend that rejects changes of votes.
type refusing struct{ *coordtest.Local }

func (r refusing) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if strings.HasPrefix(all[0].Then[0].Key, "vote/") {
		return nil, errRefused
	}
	return r.Local.Commit(ctx, all...)
}

func TestAStoreThatTakesNoVotesFillsNoLog(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		cut := &cutOff{Backend: refusing{coordtest.NewLocal()}}
		one := startWith(t, coord.Config{Name: "a", Backend: cut, Logger: slog.New(slog.NewTextHandler(&log, nil))}, cut, alone(newWorld().targets(300)))
		time.Sleep(5*time.Minute - time.Second)
		one.kill()
		if n := strings.Count(log.String(), "votes cannot be put"); n < 4 || n > 5 {
			t.Errorf("%d lines in five minutes, want one a minute", n)
		}
	})
}

// Changes are missed while an engine is a member of the fleet, and after it has rejoined with another lease: it reads
// all votes again.
func TestVotesAreReadAgainWithAnotherLease(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		one := start(t, "a", b, fleet.Targets{})
		time.Sleep(time.Minute)
		one.backend.isSilent.Store(true)
		put(t, b, "vote/b", `{"targets":6}`) // from now on the watch is silent
		time.Sleep(time.Second)
		put(t, b, "vote/b", `{"targets":7}`)
		time.Sleep(time.Minute)
		if n := one.fleet.Engines()["b"].Targets; n == 7 {
			t.Fatal("the watch is not silent")
		}
		one.backend.isSilent.Store(false)
		one.backend.isCut.Store(true)
		time.Sleep(2 * coord.DefaultTTL)
		one.backend.isCut.Store(false)
		time.Sleep(time.Minute)
		if n := one.fleet.Engines()["b"].Targets; n != 7 {
			t.Errorf("after another lease the engine has read %d", n)
		}
	})
}

// slowFleet is a Backend that delivers the members late.
type slowFleet struct{ *coordtest.Local }

func (s slowFleet) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	if strings.HasPrefix(prefix, "fleet/") {
		time.Sleep(time.Second)
	}
	return s.Local.Range(ctx, prefix)
}

// All engines choose again at each change of the vantages: the start of an engine is only one change.
func TestAnEngineThatStartsIsAVantageOnceItIsKnownWhetherItIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		var putMu sync.Mutex
		var put []string
		watching, end := context.WithCancel(t.Context())
		defer end()
		go func() {
			for events := range b.Watch(watching, "vote/", 0) {
				putMu.Lock()
				for _, e := range events {
					put = append(put, string(e.Value))
				}
				putMu.Unlock()
			}
		}()
		start(t, "a", slowFleet{b}, fleet.Targets{})
		time.Sleep(time.Minute)
		putMu.Lock()
		defer putMu.Unlock()
		if len(put) != 1 || strings.Contains(put[0], "drained") {
			t.Errorf("it has put %q", put)
		}
	})
}

// The votes on the probes of a target share one entry of the store, whose size is bounded.
func TestTooManyQuorumsOfATargetAreAnError(t *testing.T) {
	targets := newWorld().targets(1)
	targets.Quorums = map[probe.ID]quorum.Rule{}
	for i := range 65 {
		id := probe.ID{Target: "shop/web-0", Kind: probe.Readiness, Name: fmt.Sprint(i)}
		targets.Probes[id] = targets.Probes[probe.ID{Target: "shop/web-0", Kind: probe.Readiness}]
		targets.Quorums[id] = quorum.Rule{}
	}
	one := start(t, "a", coordtest.NewLocal(), fleet.Targets{})
	if err := one.fleet.Apply(targets); err == nil || !strings.Contains(err.Error(), `target "shop/web-0": more than 64 of its probes have a quorum`) {
		t.Errorf("the error is %v", err)
	}
	delete(targets.Quorums, probe.ID{Target: "shop/web-0", Kind: probe.Readiness, Name: "0"})
	if err := one.fleet.Apply(targets); err != nil {
		t.Error(err)
	}
}
