package vote_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/doubt"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/fleet/vote"
	"github.com/sonde-probe/sonde/probe"
)

// node is an engine of a fleet.
type node struct {
	*vote.Voter
	name    string
	co      *coord.Coordinator
	counter *vote.Counter
	end     func() // leaves the fleet

	decidedMu sync.Mutex   // guards all below
	decided   []string     // joint verdicts in their order
	passed    []vote.Joint // these
}

// start starts an engine, which ends with the test or by what it returns.
func start(t *testing.T, name string, b coord.Backend, ballots map[probe.ID]vote.Ballot) *node {
	t.Helper()
	n := &node{name: name}
	var err error
	n.co, err = coord.New(coord.Config{Name: name, Backend: b})
	if err != nil {
		t.Fatal(err)
	}
	if n.Voter, err = vote.NewVoter(vote.VoterConfig{Coordinator: n.co, Zone: "zone-" + name}); err != nil {
		t.Fatal(err)
	}
	if n.counter, err = vote.NewCounter(vote.CounterConfig{Coordinator: n.co, Voter: n.Voter, Decided: n.note}); err != nil {
		t.Fatal(err)
	}
	if err := n.counter.Apply(ballots); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, run := range []func(context.Context){n.co.Run, n.Run, n.counter.Run} {
		running.Go(func() { run(ctx) })
	}
	running.Go(func() { n.release(ctx) })
	n.end = func() { stop(); running.Wait() }
	t.Cleanup(n.end)
	return n
}

// release gives up the shards that others are to have, until ctx is done.
func (n *node) release(ctx context.Context) {
	for {
		owned, changed := n.co.Owned()
		var leaving []shard.ID
		for id, o := range owned {
			if o.Leaving {
				leaving = append(leaving, id)
			}
		}
		if len(leaving) > 0 {
			_ = n.co.Release(ctx, leaving...) // it is called again
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (n *node) note(id probe.ID, j vote.Joint) {
	n.decidedMu.Lock()
	defer n.decidedMu.Unlock()
	n.decided = append(n.decided, id.Target+" "+j.Verdict.String())
	n.passed = append(n.passed, j)
}

// take returns what was decided since the last call.
func (n *node) take() []string {
	n.decidedMu.Lock()
	defer n.decidedMu.Unlock()
	defer func() { n.decided = nil }()
	return n.decided
}

// say sets the vote of a node.
func (n *node) say(t *testing.T, id probe.ID, v probe.Verdict) {
	t.Helper()
	if err := n.Set(id, vote.Vote{Instance: "1", Verdict: v}); err != nil {
		t.Fatal(err)
	}
}

// setInstance says which instance of a target runs, as the present owner of its shard knows it.
func (n *node) setInstance(target, instance string) {
	in := shard.Of(target)
	owned, _ := n.co.Owned()
	n.counter.SetInstances(in, owned[in].Token, map[string]string{target: instance})
}

func readiness(target string) probe.ID { return probe.ID{Target: target, Kind: probe.Readiness} }

// ballotOf returns a ballot for each target.
func ballotOf(targets ...string) map[probe.ID]vote.Ballot {
	all := map[probe.ID]vote.Ballot{}
	for _, target := range targets {
		all[readiness(target)] = vote.Ballot{Instance: "1"}
	}
	return all
}

// settle lets what was begun end, and leases of engines that are gone.
func settle() {
	time.Sleep(3 * coord.DefaultTTL)
	synctest.Wait()
}

// joints returns the joint verdicts in a store.
func joints(t *testing.T, b coord.Backend) map[probe.ID]vote.Joint {
	t.Helper()
	entries, _, err := b.Range(t.Context(), vote.JointPrefix)
	if err != nil {
		t.Fatal(err)
	}
	all := map[probe.ID]vote.Joint{}
	for _, e := range entries {
		if id, j, ok := vote.ParseJoint(coord.Event{Entry: e}); ok {
			all[id] = j
		}
	}
	return all
}

// text returns a joint verdict as a text.
func text(j vote.Joint) string {
	return fmt.Sprintf("%v %s of %s: pass %v fail %v ignored %v", j.Verdict, j.Agreement, j.Instance, j.Passing, j.Failing, j.Ignored)
}

// expect checks the joint verdict about a target.
func expect(t *testing.T, b coord.Backend, when, target, want string) {
	t.Helper()
	j, ok := joints(t, b)[readiness(target)]
	if got := text(j); !ok && want != "" || ok && got != want {
		t.Errorf("%s: the joint verdict is %q, want %q", when, got, want)
	}
}

func TestVotesAddUpToAJointVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		web := readiness("web")
		var fleet []*node
		for _, name := range []string{"a", "b", "c"} {
			fleet = append(fleet, start(t, name, b, ballotOf("web")))
		}
		settle()
		expect(t, b, "without votes", "web", "")
		fleet[0].say(t, web, probe.Passing)
		settle()
		expect(t, b, "with one vote", "web", "undecided unanimous of 1: pass [a] fail [] ignored []")
		fleet[1].say(t, web, probe.Passing)
		fleet[2].say(t, web, probe.Undecided)
		settle()
		expect(t, b, "with two", "web", "passing unanimous of 1: pass [a b] fail [] ignored [c]")
		fleet[2].say(t, web, probe.Failing)
		settle()
		expect(t, b, "with three", "web", "passing gray of 1: pass [a b] fail [c] ignored []")
		since := joints(t, b)[web].Since
		fleet[0].say(t, web, probe.Failing)
		settle()
		expect(t, b, "after two have failed", "web", "failing gray of 1: pass [b] fail [a c] ignored []")
		if now := joints(t, b)[web].Since; !now.After(since) {
			t.Errorf("it fails since %v, and passed since %v", now, since)
		}

		fleet[2].SetHealth(true, doubt.Sample{})
		settle()
		expect(t, b, "a doubtful vantage, and a tie", "web", "failing gray of 1: pass [b] fail [a] ignored [c]")
		fleet[2].SetHealth(false, doubt.Sample{})
		fleet[0].Remove(web)
		settle()
		expect(t, b, "a vote was taken back, and there is a tie", "web", "failing gray of 1: pass [b] fail [c] ignored []")
		fleet[2].say(t, web, probe.Passing)
		settle()
		expect(t, b, "both pass", "web", "passing unanimous of 1: pass [b c] fail [] ignored []")
	})
}

func TestTheVotesOfAnEngineThatHasDiedVanish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := coord.NewLocal()
		web := readiness("web")
		fleet := map[string]*node{}
		backends := map[string]*cutOff{}
		for _, name := range []string{"a", "b", "c"} {
			backends[name] = &cutOff{Local: shared}
			fleet[name] = start(t, name, backends[name], ballotOf("web"))
		}
		settle()
		for _, n := range fleet {
			n.say(t, web, probe.Passing)
		}
		settle()
		expect(t, shared, "all live", "web", "passing unanimous of 1: pass [a b c] fail [] ignored []")
		owner := ownerOf(fleet, "web")
		backends[owner].set(true) // so that the shard is taken over, too
		settle()
		var left []string
		for _, name := range slices.Sorted(maps.Keys(fleet)) {
			if name != owner {
				left = append(left, name)
			}
		}
		expect(t, shared, "one has died", "web", fmt.Sprintf("passing unanimous of 1: pass %v fail [] ignored []", left))
		next := ownerOf(fleet, "web")
		if got := fleet[next].take(); next == owner || len(got) == 0 || got[0] != "web passing" || strings.Contains(fmt.Sprint(got), "undecided") {
			t.Errorf("the next owner of %s is %s, which has decided %v", owner, next, got)
		}
		fleet[left[0]].say(t, web, probe.Failing)
		fleet[left[0]].end()
		settle()
		expect(t, shared, "one is left", "web", fmt.Sprintf("passing unanimous of 1: pass [%s] fail [] ignored []", left[1]))
		backends[owner].set(false)
		settle()
		expect(t, shared, "one is back", "web", fmt.Sprintf("passing unanimous of 1: pass %v fail [] ignored []", slices.Sorted(slices.Values([]string{left[1], owner}))))
	})
}

// What the owner before has decided stands for the next one, but counts as decided only by the votes that this one
// has counted, even if these say the same and nothing has to be written.
func TestTheNextOwnerDecidesAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		web := readiness("web")
		fleet := map[string]*node{"a": start(t, "a", b, nil), "b": start(t, "b", b, nil)}
		for _, n := range fleet {
			n.say(t, web, probe.Failing)
		}
		put(t, b, "quorum/"+shard.Of("web").String()+"/joint/readiness//web", vote.Joint{
			Instance: "1", Verdict: probe.Failing, Decided: true, Agreement: quorum.Unanimous, Token: 1, Failing: []string{"a", "b"},
		})
		settle()
		for _, n := range fleet {
			if err := n.counter.Apply(ballotOf("web")); err != nil {
				t.Fatal(err)
			}
		}
		settle()
		owner := fleet[ownerOf(fleet, "web")]
		owned, _ := owner.co.Owned()
		if token := joints(t, b)[web].Token; token != 1 {
			t.Errorf("it was written again with the token %d", token)
		}
		if len(owner.passed) != 2 {
			t.Fatalf("Decided was called with %+v", owner.passed)
		}
		if j := owner.passed[0]; j.Decided || j.Verdict != probe.Failing || j.Token != 1 {
			t.Errorf("the owner begins with %+v", j)
		}
		if j := owner.passed[1]; !j.Decided || j.Verdict != probe.Failing || j.Token != owned[shard.Of("web")].Token {
			t.Errorf("the votes have decided %+v", j)
		}
	})
}

// ownerOf returns the engine that owns the shard of a target.
func ownerOf(fleet map[string]*node, target string) string {
	for name, n := range fleet {
		if owned, _ := n.co.Owned(); owned[shard.Of(target)].Token != 0 {
			return name
		}
	}
	return ""
}

// cutOff is a Backend that answers nothing while it is cut off.
type cutOff struct {
	*coord.Local
	cutMu sync.Mutex
	isCut bool
}

func (c *cutOff) set(isCut bool) {
	c.cutMu.Lock()
	defer c.cutMu.Unlock()
	c.isCut = isCut
}

var errCut = fmt.Errorf("no answer")

func (c *cutOff) err() error {
	c.cutMu.Lock()
	defer c.cutMu.Unlock()
	if c.isCut {
		return errCut
	}
	return nil
}

func (c *cutOff) KeepAlive(ctx context.Context, l coord.Lease) error {
	if err := c.err(); err != nil {
		return err
	}
	return c.Local.KeepAlive(ctx, l)
}

func (c *cutOff) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	if err := c.err(); err != nil {
		return 0, err
	}
	return c.Local.Grant(ctx, ttl)
}

func (c *cutOff) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	return c.Local.Commit(ctx, all...)
}

func TestAnotherInstanceHasNoVerdictYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		web := readiness("web")
		fleet := map[string]*node{"a": start(t, "a", b, ballotOf("web", "db")), "b": start(t, "b", b, ballotOf("web", "db"))}
		settle()
		for _, n := range fleet {
			n.say(t, web, probe.Failing)
		}
		settle()
		expect(t, b, "the first instance", "web", "failing unanimous of 1: pass [] fail [a b] ignored []")
		for _, n := range fleet {
			n.setInstance("web", "2")
		}
		settle()
		expect(t, b, "the second instance", "web", "undecided none of 2: pass [] fail [] ignored [a b]")
		for _, n := range fleet {
			if err := n.Set(web, vote.Vote{Instance: "2", Verdict: probe.Passing}); err != nil {
				t.Fatal(err)
			}
		}
		settle()
		expect(t, b, "the second instance passes", "web", "passing unanimous of 2: pass [a b] fail [] ignored []")
	})
}

func TestWhatHasNoBallotIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		fleet := []*node{start(t, "a", b, ballotOf("web", "db")), start(t, "b", b, ballotOf("web", "db"))}
		settle()
		for _, n := range fleet {
			n.say(t, readiness("web"), probe.Passing)
			n.say(t, readiness("db"), probe.Passing)
		}
		settle()
		if n := len(joints(t, b)); n != 2 {
			t.Fatalf("there are %d joint verdicts", n)
		}
		for _, n := range fleet {
			if err := n.counter.Apply(ballotOf("db")); err != nil {
				t.Fatal(err)
			}
			n.Remove(readiness("web"))
		}
		settle()
		entries, _, err := b.Range(t.Context(), vote.JointPrefix)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Key, "readiness//db") {
				t.Errorf("there is %s", e.Key)
			}
		}
		if len(entries) != 3 {
			t.Errorf("there are %d votes and joint verdicts of db", len(entries))
		}
	})
}

func TestOnlyChangesAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		fleet := []*node{start(t, "a", b, ballotOf("web")), start(t, "b", b, ballotOf("web"))}
		settle()
		for _, n := range fleet {
			n.say(t, readiness("web"), probe.Passing)
			n.SetHealth(false, doubt.Sample{Targets: 1000, Failing: 20})
		}
		settle()
		_, before, err := b.Range(t.Context(), vote.JointPrefix)
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			time.Sleep(time.Minute)
			for _, n := range fleet {
				n.say(t, readiness("web"), probe.Passing)
				n.SetHealth(false, doubt.Sample{Targets: 1001, Failing: 25})
				if err := n.counter.Apply(ballotOf("web")); err != nil {
					t.Fatal(err)
				}
			}
		}
		synctest.Wait()
		if _, after, _ := b.Range(t.Context(), vote.JointPrefix); after != before {
			t.Errorf("%d changes in an hour in which nothing changed", after-before)
		}
		fleet[0].SetHealth(false, doubt.Sample{Targets: 1000, Failing: 31})
		synctest.Wait()
		if s := fleet[1].Others(); s != (doubt.Sample{Targets: 1000, Failing: 31}) {
			t.Errorf("another engine says %+v", s)
		}
		fleet[0].SetHealth(true, doubt.Sample{Targets: 1000, Failing: 31})
		synctest.Wait()
		if s := fleet[1].Others(); s != (doubt.Sample{}) {
			t.Errorf("another engine, which doubts, says %+v", s)
		}
	})
}

// counted is a Backend that counts requests, each of which takes a while: in a bubble, none ends before the test waits.
type counted struct {
	*coord.Local
	countMu  sync.Mutex // guards all below
	requests int
	most     int // transactions in one
	reads    atomic.Int64
}

func (c *counted) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	if strings.HasPrefix(prefix, vote.JointPrefix) {
		c.reads.Add(1)
	}
	time.Sleep(10 * time.Millisecond)
	return c.Local.Range(ctx, prefix)
}

func (c *counted) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	c.countMu.Lock()
	c.requests++
	c.most = max(c.most, len(all))
	c.countMu.Unlock()
	time.Sleep(10 * time.Millisecond)
	return c.Local.Commit(ctx, all...)
}

func TestVotesArePutInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counted{Local: coord.NewLocal()}
		n := start(t, "a", b, nil)
		settle()
		before := b.requests
		const votes = 1000
		for i := range votes {
			n.say(t, readiness(fmt.Sprint("web-", i)), probe.Passing)
		}
		settle()
		entries, _, err := b.Range(t.Context(), vote.JointPrefix)
		if err != nil || len(entries) != votes {
			t.Errorf("%d votes were put, %v", len(entries), err)
		}
		if n := b.requests - before; n > 2*votes/coord.MaxTransactions || b.most > coord.MaxTransactions {
			t.Errorf("by %d requests of up to %d transactions", n, b.most)
		}
	})
}

// Instances follow each other fast, as while many targets of a shard are restarted.
func TestVotesAreNotReadAgainForAnotherInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counted{Local: coord.NewLocal()}
		web := readiness("web")
		n := start(t, "a", b, map[probe.ID]vote.Ballot{web: {Instance: "1", Rule: quorum.Rule{Min: 1}}})
		settle()
		n.say(t, web, probe.Passing)
		settle()
		before := b.reads.Load()
		const last = 50
		for i := range last {
			n.setInstance("web", fmt.Sprint(i+1))
			time.Sleep(15 * time.Millisecond) // a request takes ten
			if j := joints(t, b.Local)[web]; j.Instance != fmt.Sprint(i+1) {
				t.Fatalf("the joint verdict is of the instance %s, %d runs", j.Instance, i+1)
			}
		}
		if reads := b.reads.Load() - before; reads > 0 {
			t.Errorf("votes were read %d times for %d instances", reads, last)
		}
	})
}

func TestTheVantagesAreTheEnginesThatVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		x, y := start(t, "x", b, nil), start(t, "y", b, nil)
		settle()
		live, changed := x.Vantages()
		slices.SortFunc(live, func(a, b quorum.Vantage) int { return strings.Compare(a.Name, b.Name) })
		if got, want := fmt.Sprint(live), "[{x zone-x} {y zone-y}]"; got != want {
			t.Errorf("they are %s, want %s", got, want)
		}
		y.end()
		<-changed
		if live, _ := x.Vantages(); len(live) != 1 || live[0].Name != "x" {
			t.Errorf("they are %v", live)
		}
	})
}

func TestProbesOfAnyNameHaveKeysOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		n := start(t, "a", b, nil)
		ids := []probe.ID{
			{Target: "a", Kind: probe.Readiness, Name: "b:liveness"}, {Target: "a:readiness/b", Kind: probe.Liveness},
			{Target: "shop/web", Kind: probe.Startup, Name: "x/y%2F z"}, {Target: "shop/web", Kind: probe.Startup, Name: "x%2Fy%2F z"},
			{Target: "/joint/", Kind: probe.Readiness}, {Target: "/vote/a/readiness//x", Kind: probe.Readiness, Name: "/joint/"},
			{Target: "ü", Kind: probe.Liveness, Name: "ö"},
		}
		ballots := map[probe.ID]vote.Ballot{}
		for _, id := range ids {
			ballots[id] = vote.Ballot{Instance: "1", Rule: quorum.Rule{Min: 1}}
			n.say(t, id, probe.Passing)
		}
		if err := n.counter.Apply(ballots); err != nil {
			t.Fatal(err)
		}
		settle()
		all := joints(t, b)
		if len(all) != len(ids) {
			t.Errorf("there are %d joint verdicts, want %d", len(all), len(ids))
		}
		for _, id := range ids {
			if all[id].Verdict != probe.Passing {
				t.Errorf("%v: %+v", id, all[id])
			}
		}
	})
}

func TestWhatCannotBeReadIsAsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		fleet := []*node{start(t, "a", b, ballotOf("web")), start(t, "b", b, ballotOf("web"))}
		settle()
		in := shard.Of("web").String()
		for _, key := range []string{
			"/vote/x/readiness//web", "/vote/x/readiness//", "/vote/x/", "/vote/", "/vote/x/other//web", "/vote/x/readiness/%zz/web",
			"/joint/readiness//web", "/joint/readiness//db", "/joint/", "/later/x",
		} {
			if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: "quorum/" + in + key, Value: []byte("?")}}}); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range fleet {
			n.say(t, readiness("web"), probe.Passing)
		}
		settle()
		expect(t, b, "after values of a later release", "web", "passing unanimous of 1: pass [a b] fail [] ignored []")
	})
}

func TestAStoreThatIsAwayFillsNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &unreadable{Local: coord.NewLocal()}
		co, err := coord.New(coord.Config{Name: "a", Backend: b})
		if err != nil {
			t.Fatal(err)
		}
		voter, err := vote.NewVoter(vote.VoterConfig{Coordinator: co})
		if err != nil {
			t.Fatal(err)
		}
		var lines lineCount
		counter, err := vote.NewCounter(vote.CounterConfig{Coordinator: co, Voter: voter, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ballots := map[probe.ID]vote.Ballot{}
		for i := range 300 {
			ballots[readiness(fmt.Sprint("web-", i))] = vote.Ballot{Instance: "1"}
		}
		if err := counter.Apply(ballots); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, run := range []func(context.Context){co.Run, voter.Run, counter.Run} {
			running.Go(func() { run(ctx) })
		}
		time.Sleep(5*time.Minute - time.Second)
		stop()
		running.Wait()
		if n := lines.Load(); n < 4 || n > 5 {
			t.Errorf("%d lines in five minutes, want one a minute", n)
		}
		if n := b.most.Load(); n < 2 || n > 16 {
			t.Errorf("%d shards were read at the same time", n)
		}
	})
}

// unreadable is a Backend that does not return what is said about quorums.
type unreadable struct {
	*coord.Local
	reading, most atomic.Int32
}

func (u *unreadable) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	if !strings.HasPrefix(prefix, vote.JointPrefix) {
		return u.Local.Range(ctx, prefix)
	}
	u.most.Store(max(u.most.Load(), u.reading.Add(1)))
	defer u.reading.Add(-1)
	time.Sleep(time.Second)
	return nil, 0, errCut
}

// lineCount counts what is written to a log.
type lineCount struct{ atomic.Int32 }

func (l *lineCount) Write(b []byte) (int, error) {
	l.Add(1)
	return len(b), nil
}

func TestWhatIsWrongIsRejected(t *testing.T) {
	co, err := coord.New(coord.Config{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	voter, err := vote.NewVoter(vote.VoterConfig{Coordinator: co})
	if err != nil {
		t.Fatal(err)
	}
	counter, err := vote.NewCounter(vote.CounterConfig{Coordinator: co, Voter: voter})
	if err != nil {
		t.Fatal(err)
	}
	_, noCoordinator := vote.NewVoter(vote.VoterConfig{})
	_, longZone := vote.NewVoter(vote.VoterConfig{Coordinator: co, Zone: strings.Repeat("z", 64)})
	_, noVoter := vote.NewCounter(vote.CounterConfig{Coordinator: co})
	for want, err := range map[string]error{
		"VoterConfig.Coordinator is required":                               noCoordinator,
		"zone has 64 bytes, at most 63 are allowed":                         longZone,
		"CounterConfig.Coordinator and CounterConfig.Voter are required":    noVoter,
		"target must not be empty":                                          voter.Set(probe.ID{Kind: probe.Readiness}, vote.Vote{}),
		`instance of "web" has 513 bytes, at most 512 are allowed`:          voter.Set(readiness("web"), vote.Vote{Instance: strings.Repeat("i", 513)}),
		`quorum of probe "web:readiness": vantages is 1; it must be from 2`: counter.Apply(map[probe.ID]vote.Ballot{readiness("web"): {Rule: quorum.Rule{Vantages: 1}}}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}
