package vote_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/fleet/vote"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// chaos is a Backend that cannot be reached for a while. Requests that are sent meanwhile may arrive later all
// the same, and answers are lost.
type chaos struct {
	*coord.Local
	late sync.WaitGroup // requests on their way

	chaosMu sync.Mutex // guards all below
	random  *rand.Rand
	until   time.Time
}

// cut cuts the backend off for a time.
func (c *chaos) cut(d time.Duration) {
	c.chaosMu.Lock()
	defer c.chaosMu.Unlock()
	c.until = time.Now().Add(d)
}

// fate returns what becomes of a request: whether it arrives now, or else after how long, and whether its
// answer is lost.
func (c *chaos) fate() (isNow bool, after time.Duration, isLost bool) {
	c.chaosMu.Lock()
	defer c.chaosMu.Unlock()
	return !time.Now().Before(c.until), time.Duration(c.random.Int64N(int64(15 * time.Second))), c.random.IntN(20) == 0
}

func (c *chaos) KeepAlive(ctx context.Context, l coord.Lease) error {
	if isNow, _, _ := c.fate(); !isNow {
		return errCut
	}
	return c.Local.KeepAlive(ctx, l)
}

func (c *chaos) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	isNow, after, isLost := c.fate()
	if !isNow {
		c.late.Go(func() {
			time.Sleep(after)
			_, _ = c.Local.Commit(context.Background(), all...) // the lease may have ended
		})
		return nil, errCut
	}
	made, err := c.Local.Commit(ctx, all...)
	if isLost {
		return nil, errCut
	}
	return made, err
}

// Watch returns late what happens while it is cut off.
func (c *chaos) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	return func(yield func([]coord.Event, error) bool) {
		for events, err := range c.Local.Watch(ctx, prefix, after) {
			for isNow, _, _ := c.fate(); !isNow && ctx.Err() == nil; isNow, _, _ = c.fate() {
				time.Sleep(100 * time.Millisecond)
			}
			if !yield(events, err) {
				return
			}
		}
	}
}

// A history of engines that are cut off at random while targets change: no joint verdict is put but by the
// owner of the shard, and in the end all are what the vantages say.
func TestOnlyTheOwnerDecidesAtRandom(t *testing.T) {
	tier.Slow(t)
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) { play(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func play(t *testing.T, random *rand.Rand) {
	shared := coord.NewLocal()
	checked := checkOwners(t, shared)
	targets := []string{"web", "api", "db", "cache", "mail"}
	var backends []*chaos
	var fleet []*node
	for i := range 3 {
		b := &chaos{Local: shared, random: rand.New(rand.NewPCG(random.Uint64(), 2))}
		backends = append(backends, b)
		fleet = append(fleet, start(t, fmt.Sprint("engine-", i), b, ballotOf(targets...)))
	}
	said := map[string]map[string]probe.Verdict{} // by target and engine
	for _, target := range targets {
		said[target] = map[string]probe.Verdict{}
	}
	for range 300 {
		n, target := fleet[random.IntN(len(fleet))], targets[random.IntN(len(targets))]
		said[target][n.name] = []probe.Verdict{probe.Passing, probe.Failing}[random.IntN(2)]
		n.say(t, readiness(target), said[target][n.name])
		if random.IntN(10) == 0 {
			backends[random.IntN(len(backends))].cut(time.Duration(random.Int64N(int64(12 * time.Second))))
		}
		time.Sleep(time.Duration(random.Int64N(int64(500 * time.Millisecond))))
	}
	for range 5 { // late requests arrive, and sessions begin anew
		settle()
	}
	for _, b := range backends {
		b.late.Wait()
	}
	settle()
	all := joints(t, shared)
	for target, votes := range said {
		var ballots []quorum.Vote
		for name, v := range votes {
			ballots = append(ballots, quorum.Vote{Vantage: name, Instance: "1", Verdict: v})
		}
		want := quorum.Decide(quorum.Rule{}.WithDefaults(), ballots, "1", probe.Undecided, time.Now())
		if j := all[readiness(target)]; len(ballots) != len(fleet) || j.Verdict != want.Verdict || !slices.Equal(j.Failing, want.Failing) || !slices.Equal(j.Passing, want.Passing) {
			t.Errorf("%s is in the end %s, want %+v", target, text(j), want)
		}
	}
	for _, n := range fleet {
		n.end()
	}
	for _, b := range backends {
		b.late.Wait()
	}
	checked()
}

// checkOwners checks by the history of a store, until what it returns is called, that each joint verdict is
// put with the token of the shard's owner at that time.
func checkOwners(t *testing.T, b *coord.Local) (end func()) {
	ctx, stop := context.WithCancel(t.Context())
	puts, owners := 0, map[coord.Revision]bool{}
	var watching sync.WaitGroup
	watching.Go(func() {
		owner := map[string]coord.Revision{}
		for events, err := range b.Watch(ctx, "", 0) {
			if err != nil && ctx.Err() == nil {
				t.Errorf("the history: %v", err)
			}
			for _, e := range events {
				if in, isShard := strings.CutPrefix(e.Key, "fleet/shard/"); isShard {
					owner[in] = e.Created // 0 if it is deleted
				}
				id, j, ok := vote.ParseJoint(e)
				if !ok || e.Deleted {
					continue
				}
				puts++
				owners[j.Token] = true
				if token := owner[shard.Of(id.Target).String()]; j.Token != token || token == 0 {
					t.Errorf("the joint verdict of %v was put with the token %d, its owner has %d", id, j.Token, token)
				}
			}
		}
	})
	return func() {
		synctest.Wait()
		stop()
		watching.Wait()
		if puts < 20 || len(owners) < 8 {
			t.Errorf("%d joint verdicts were put with %d tokens: the test shows nothing", puts, len(owners))
		}
	}
}

// delayed is a Backend on which the next request that changes a key with some text is late.
type delayed struct {
	*coord.Local
	delayedMu sync.Mutex // guards all below
	text      string
	late      []coord.Transaction
}

func (d *delayed) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	d.delayedMu.Lock()
	defer d.delayedMu.Unlock()
	if d.text != "" && strings.Contains(all[0].Then[0].Key, d.text) {
		d.text, d.late = "", all
		return nil, errCut
	}
	return d.Local.Commit(ctx, all...)
}

// delay delays the next request with a text.
func (d *delayed) delay(text string) {
	d.delayedMu.Lock()
	defer d.delayedMu.Unlock()
	d.text = text
}

// deliver delivers the request that is late.
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

func TestARequestThatComesLateChangesNothing(t *testing.T) {
	for _, key := range []string{"/vote/", "/joint/"} {
		t.Run(key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &delayed{Local: coord.NewLocal()}
				web := readiness("web")
				n := start(t, "a", b, map[probe.ID]vote.Ballot{web: {Instance: "1", Rule: quorum.Rule{Min: 1}}})
				settle()
				n.say(t, web, probe.Passing)
				settle()
				b.delay(key)
				n.say(t, web, probe.Failing)
				settle()
				n.say(t, web, probe.Passing)
				settle()
				b.deliver(t)
				settle()
				expect(t, b, "after a late request", "web", "passing unanimous of 1: pass [a] fail [] ignored []")
			})
		})
	}
}

func TestWhatWasTakenBackIsDeletedAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &delayed{Local: coord.NewLocal()}
		n := start(t, "a", b, nil)
		settle()
		n.say(t, readiness("web"), probe.Passing)
		settle()
		b.delay("/vote/")
		n.Remove(readiness("web"))
		settle()
		if entries, _, err := b.Range(t.Context(), vote.JointPrefix); err != nil || len(entries) != 0 {
			t.Errorf("there are %v, %v", entries, err)
		}
	})
}
