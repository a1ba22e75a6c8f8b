package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/coordtest"
)

// mirrored returns votes that engine "a" has read as a member of a fleet by the lease that is returned.
func mirrored(t *testing.T, entries map[string]string) (*votes, coord.Lease) {
	t.Helper()
	co, err := coord.New(coord.Config{Name: "a", Backend: coordtest.NewLocal()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		co.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
	time.Sleep(time.Minute)
	lease, _ := co.Lease()
	v := newVotes(co, "", nil)
	v.voted = func(string) {}
	v.apply(lease, events(entries), true)
	return v, lease
}

func events(entries map[string]string) (all []coord.Event) {
	for key, value := range entries {
		all = append(all, coord.Event{Entry: coord.Entry{Key: coord.KeyVote + key, Value: []byte(value), Created: 1, Modified: 1}})
	}
	return all
}

func TestWhichVotesCount(t *testing.T) {
	web := probe.ID{Target: "web", Kind: probe.Liveness, Name: "x"}
	said := func(lease int, polls ...string) string {
		var votes []string
		for _, poll := range polls {
			votes = append(votes, fmt.Sprintf(`{"poll":%q,"verdict":"failing"}`, poll))
		}
		return fmt.Sprintf(`{"instance":"1","lease":%d,"votes":[%s]}`, lease, strings.Join(votes, ","))
	}
	for _, c := range []struct {
		name         string
		self, ballot string // of "b"
		want         string
	}{
		{"a vote", `{"lease":7}`, said(7, "r/x", "l/x"), "b 1 failing false"},
		{"one that is doubtful", `{"lease":7,"doubtful":true}`, said(7, "l/x"), "b 1 failing true"},
		{"one of a drained engine", `{"lease":7,"drained":true}`, said(7, "l/x"), ""},
		{"one of an earlier membership", `{"lease":8}`, said(7, "l/x"), ""},
		{"two on one probe", `{"lease":7}`, said(7, "l/x", "l/x"), "b 1 failing false"},
		{"votes on other probes", `{"lease":7}`, said(7, "l/", "r/x", "s/x", "x", ""), ""},
		{"one of an engine of another release", `?`, said(7, "l/x"), ""},
		{"a ballot of another release", `{"lease":7}`, `{"votes":{}}`, ""},
		{"a ballot that is too long", `{"lease":7}`, said(7, "l/x", strings.Repeat("x", maxBallot)), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, _ := mirrored(t, map[string]string{"b": c.self, "b/web": c.ballot})
				got := ""
				all, _ := v.about(joint{id: web, rule: quorum.Rule{}.WithDefaults()})
				for _, vote := range all {
					got += fmt.Sprint(vote.Vantage, " ", vote.Instance, " ", vote.Verdict, " ", vote.Doubtful)
				}
				if got != c.want {
					t.Errorf("those that count are %q, want %q", got, c.want)
				}
			})
		})
	}
}

// Votes that were read in another membership, or before changes were missed, are no evidence.
func TestVotesThatMayBeOldAreNotCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, lease := mirrored(t, nil)
		if v.isCurrent(0) || !v.isCurrent(lease) || v.isCurrent(lease+1) {
			t.Errorf("they were read with the lease %d, and are current with 0: %v, with that: %v, with another one: %v", lease, v.isCurrent(0), v.isCurrent(lease), v.isCurrent(lease+1))
		}
		v.outdate()
		if v.isCurrent(lease) || v.isCurrent(0) {
			t.Error("they are current after the watch has ended")
		}
	})
}

// Engines are chosen again when there are other ones, or when some are in other zones or drained, but not whenever one has other
// numbers.
func TestNumbersOfOthersChangeNoChoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, lease := mirrored(t, nil)
		r := quorum.Rule{}.WithDefaults()
		for _, c := range []struct {
			key, value string
			isOther    bool
			chosen     string
		}{
			{"a", `{}`, true, "[a]"},
			{"b", `{}`, true, "[a b]"},
			{"b", `{}`, false, "[a b]"},
			{"a", `{"targets":10,"failing":3}`, false, "[a b]"},
			{"a", `{"doubtful":true}`, false, "[a b]"},
			{"a", `{"zone":"eu"}`, true, "[a b]"},
			{"a", `{"zone":"eu","drained":true}`, true, "[b]"},
			{"b", "", true, "[]"},
		} {
			select {
			case <-v.rechoose:
			default:
			}
			all := events(map[string]string{c.key: c.value})
			all[0].Deleted = c.value == ""
			v.apply(lease, all, false)
			isOther := false
			select {
			case <-v.rechoose:
				isOther = true
			default:
			}
			chosen := slices.Sorted(slices.Values(v.choose(1, r)))
			if got := fmt.Sprint(chosen); isOther != c.isOther || got != c.chosen {
				t.Errorf("%s is %s: others are chosen: %v, %s, want %s", c.key, c.value, isOther, got, c.chosen)
			}
		}
	})
}
