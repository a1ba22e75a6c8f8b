package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/doubt"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/coordtest"
)

// mirrored returns votes that engine "a" has read as a member of a fleet with the returned lease, and keeps reading.
func mirrored(t *testing.T, entries map[string]string) (*votes, coord.Lease) {
	t.Helper()
	co, err := coord.New(coord.Config{Name: "a", Backend: coordtest.NewLocal()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { co.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	time.Sleep(time.Minute)
	v := newVotes(co, "")
	v.voted, v.ballot = func(string) {}, func(string, coord.Lease) []byte { return nil }
	running.Go(func() { v.said.Run(ctx) })
	for key, value := range entries {
		say(t, v, key, value)
	}
	lease, _ := co.Lease()
	return v, lease
}

// say puts an entry, or deletes it for "", and waits until it is mirrored.
func say(t *testing.T, v *votes, key, value string) {
	t.Helper()
	change := coord.Change{Key: coord.VoteKeys.Key(key), Value: []byte(value), Delete: value == ""}
	if _, err := v.coordinator.Backend().Commit(t.Context(), coord.Transaction{Then: []coord.Change{change}}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
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

// Votes that were read during another membership, or before changes were missed, do not count as evidence.
func TestVotesThatMayBeOldAreNotCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of, lease := mirrored(t, nil)
		v := newVotes(of.coordinator, "")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go v.said.Run(ctx)
		synctest.Wait()
		if v.isCurrent(0) || !v.isCurrent(lease) || v.isCurrent(lease+1) {
			t.Errorf("they were read with the lease %d, and are current with 0: %v, with that: %v, with another one: %v", lease, v.isCurrent(0), v.isCurrent(lease), v.isCurrent(lease+1))
		}
		stop()
		synctest.Wait()
		if v.isCurrent(lease) || v.isCurrent(0) {
			t.Error("they are current after the watch has ended")
		}
	})
}

// Engines are chosen again when engines join or leave, or when their zones or drains change, but not when only their
// numbers change.
func TestNumbersOfOthersChangeNoChoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := mirrored(t, nil)
		r := quorum.Rule{}.WithDefaults()
		for _, c := range []struct {
			key, value string
			isOther    bool
			chosen     string
		}{
			{"b", `{}`, true, "[b]"},
			{"c", `{}`, true, "[b c]"},
			{"c", `{} `, false, "[b c]"},
			{"b", `{"targets":10,"failing":3}`, false, "[b c]"},
			{"b", `{"doubtful":true}`, false, "[b c]"},
			{"b", `{"zone":"eu"}`, true, "[b c]"},
			{"b", `{"zone":"eu","drained":true}`, true, "[c]"},
			{"c", "", true, "[]"},
		} {
			select {
			case <-v.rechoose:
			default:
			}
			say(t, v, c.key, c.value)
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

// The numbers in an entry of a stranger are bounded: otherwise engines would all doubt themselves, or never.
func TestNumbersOfOthersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for value, want := range map[string]doubt.Sample{
			`{"targets":10,"failing":3}`:                                    {Targets: 10, Failing: 3},
			`{"targets":10,"failing":30}`:                                   {Targets: 10, Failing: 10},
			`{"targets":-10,"failing":3}`:                                   {},
			`{"targets":10,"failing":-3}`:                                   {Targets: 10},
			`{"targets":9223372036854775807,"failing":9223372036854775807}`: {Targets: maxSeen, Failing: maxSeen},
			`{"targets":9223372036854775808}`:                               {},
		} {
			v, _ := mirrored(t, map[string]string{"b": value, "c": `{}`})
			if got, _ := v.others(); got != want {
				t.Errorf("of %s it takes %+v, want %+v", value, got, want)
			}
		}
	})
}
