package vote_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"
	"sync"
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

// Of five engines three are chosen. The votes of the other two, and of engines that do not exist, change nothing,
// and are not among those that are ignored.
func TestOnlyVotesOfChosenVantagesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		web := readiness("web")
		fleet := map[string]*node{}
		var live []quorum.Vantage
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			fleet[name] = start(t, name, b, ballotOf("web"))
			live = append(live, quorum.Vantage{Name: name, Zone: "zone-" + name})
		}
		chosen := quorum.Choose(shard.Of("web"), quorum.Rule{}.WithDefaults(), live)
		settle()
		for name, n := range fleet {
			verdict := probe.Failing
			if slices.Contains(chosen, name) {
				verdict = probe.Passing
			}
			n.say(t, web, verdict)
		}
		stuff(t, b, web, 20)
		settle()
		slices.Sort(chosen)
		expect(t, b, "five vote, and twenty that do not exist", "web", fmt.Sprintf("passing unanimous of 1: pass %v fail [] ignored []", chosen))
		fleet[chosen[0]].end() // another one is chosen, which sees the target fail
		settle()
		var others []string
		for _, v := range live {
			if v.Name != chosen[0] {
				others = append(others, v.Name)
			}
		}
		if j := joints(t, b)[web]; len(j.Passing) != 2 || len(j.Failing) != 1 || !slices.Contains(others, j.Failing[0]) {
			t.Errorf("after the first has left: %s", text(j))
		}
	})
}

// stuff puts failing votes of engines that do not exist, as any program can that may write to the store.
func stuff(t *testing.T, b coord.Backend, id probe.ID, n int) {
	t.Helper()
	value, err := json.Marshal(vote.Vote{Instance: "1", Verdict: probe.Failing})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		key := fmt.Sprintf("quorum/%s/vote/nobody-%d/%s/%s/%s", shard.Of(id.Target), i, id.Kind, url.PathEscape(id.Name), id.Target)
		if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: key, Value: value}}}); err != nil {
			t.Fatal(err)
		}
	}
}

// The owner of a shard knows the instance of a target a moment after it has taken the shard over.
func TestTheLastVerdictStandsUntilTheInstanceIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		web := readiness("web")
		first := []*node{start(t, "a", b, ballotOf("web")), start(t, "b", b, ballotOf("web"))}
		settle()
		for _, n := range first {
			n.say(t, web, probe.Failing)
		}
		settle()
		for _, n := range first {
			n.end()
		}
		unknown := map[probe.ID]vote.Ballot{web: {}}
		next := []*node{start(t, "c", b, unknown), start(t, "d", b, unknown)}
		for _, n := range next {
			n.say(t, web, probe.Passing)
		}
		settle()
		if j := joints(t, b)[web]; j.Verdict != probe.Failing || j.Instance != "1" {
			t.Errorf("the instance is not known: %s", text(j))
		}
		for _, n := range next {
			n.setInstance("web", "1")
		}
		settle()
		expect(t, b, "the instance is known", "web", "passing unanimous of 1: pass [c d] fail [] ignored []")
	})
}

// A store that was restored from a snapshot has lower revisions than those that are watched from.
func TestVantagesAreReadAgainWithAnotherLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &restored{Local: coord.NewLocal()}
		a := start(t, "a", b, nil)
		followed := map[string]bool{}
		var followedMu sync.Mutex // guards followed
		has := func(target string) bool {
			followedMu.Lock()
			defer followedMu.Unlock()
			return followed[target]
		}
		ctx, stop := context.WithCancel(t.Context())
		var following sync.WaitGroup
		following.Go(func() {
			a.Follow(ctx, func(id probe.ID, _ vote.Joint) {
				followedMu.Lock()
				defer followedMu.Unlock()
				followed[id.Target] = true
			})
		})
		t.Cleanup(func() { stop(); following.Wait() })
		settle()
		b.set(true) // the watches are silent from now on
		put(t, b, "vantage/b", vote.Vantage{Targets: 7})
		put(t, b, "quorum/"+shard.Of("web").String()+"/joint/readiness//web", vote.Joint{Instance: "1"})
		time.Sleep(time.Minute)
		if n := a.Others(); n != (doubt.Sample{}) || has("web") {
			t.Fatalf("the watches are not silent: %+v", n)
		}
		b.set(false)
		b.end(t) // as after a restore from a snapshot that lacks it
		settle()
		if n := a.Others(); n.Targets != 7 || !has("web") {
			t.Errorf("after another lease the engine has read %+v, and the joint verdict: %v", n, has("web"))
		}
	})
}

func put(t *testing.T, b coord.Backend, key string, value any) {
	t.Helper()
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: key, Value: encoded}}}); err != nil {
		t.Fatal(err)
	}
}

// restored is a Backend whose watches can be silent: those that were begun while, or before, it is.
type restored struct {
	*coord.Local
	silentMu sync.Mutex // guards all below
	isSilent bool
	silenced map[int]bool
	watches  int
	leases   []coord.Lease
}

func (r *restored) set(isSilent bool) {
	r.silentMu.Lock()
	defer r.silentMu.Unlock()
	r.isSilent, r.silenced = isSilent, map[int]bool{}
	for i := range r.watches {
		r.silenced[i] = true
	}
}

// end ends all leases.
func (r *restored) end(t *testing.T) {
	t.Helper()
	r.silentMu.Lock()
	defer r.silentMu.Unlock()
	for _, l := range r.leases {
		if err := r.Revoke(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *restored) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	l, err := r.Local.Grant(ctx, ttl)
	r.silentMu.Lock()
	defer r.silentMu.Unlock()
	r.leases = append(r.leases, l)
	return l, err
}

func (r *restored) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	r.silentMu.Lock()
	n := r.watches
	r.watches++
	r.silentMu.Unlock()
	isSilent := func() bool {
		r.silentMu.Lock()
		defer r.silentMu.Unlock()
		return r.isSilent || r.silenced[n]
	}
	return func(yield func([]coord.Event, error) bool) {
		for events, err := range r.Local.Watch(ctx, prefix, after) {
			if prefix != "fleet/" && err == nil && isSilent() {
				continue
			}
			if !yield(events, err) {
				return
			}
		}
	}
}

// slowFleet is a Backend that says late who is a member.
type slowFleet struct{ *coord.Local }

func (s slowFleet) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	if strings.HasPrefix(prefix, "fleet/") {
		time.Sleep(time.Second)
	}
	return s.Local.Range(ctx, prefix)
}

// All engines count again with each change of the vantages: an engine that starts is one change.
func TestAnEngineThatStartsIsAVantageOnceItIsKnownWhetherItIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		var putMu sync.Mutex
		var put []string
		watching, end := context.WithCancel(t.Context())
		defer end()
		go func() {
			for events := range b.Watch(watching, "vantage/", 0) {
				putMu.Lock()
				for _, e := range events {
					put = append(put, string(e.Value))
				}
				putMu.Unlock()
			}
		}()
		start(t, "a", slowFleet{b}, nil)
		settle()
		putMu.Lock()
		defer putMu.Unlock()
		if len(put) != 1 || strings.Contains(put[0], "drained") {
			t.Errorf("it has put %q", put)
		}
	})
}
