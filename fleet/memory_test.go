package fleet

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// memoriesOf returns the memories of a number of targets with two probes and a driver each.
func memoriesOf(targets int) memories {
	all := memories{}
	for i := range targets {
		target, id := fmt.Sprintf("shop/web-%d", i), fmt.Sprintf("web-%d-%08x", i, rand.Uint32())
		m := engine.Memory{
			State:    verdict.State{Verdict: probe.Passing, Last: probe.Success, Run: 1, Instance: id},
			Since:    time.Unix(1_700_000_000, rand.Int64N(1e18)).Round(0),
			Endpoint: rand.Uint64(), Handler: rand.Uint32(), Changes: uint64(i),
		}
		all[target] = &memory{
			Version: version, Notified: []byte("told"), NotifiedOfGroup: []byte("told of a group"),
			Probes: []probeMemory{{Kind: probe.Liveness, Name: "db", Memory: m}, {Kind: probe.Readiness, Memory: m}},
			Restarts: &restart.Memory{
				Revision: restart.Unit{Revision: target}.RevisionID(), Instance: id, Since: m.Since.UTC(), Started: 3, Exits: 2,
				NotBefore: m.Since.UTC().Add(time.Minute), LastExit: "exit status 143", LastReason: probe.ReasonEnded,
			},
		}
	}
	return all
}

// decoded returns the memories that were encoded by target.
func decoded(t *testing.T, values map[string][]byte) memories {
	t.Helper()
	all := memories{}
	for target, b := range values {
		if err := all.add(target, b); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestMemoriesAreDecodedAsTheyWereEncoded(t *testing.T) {
	for _, n := range []int{0, 1, 244} { // 244 per shard for a million targets
		want := memoriesOf(n)
		values, incomplete := want.encode()
		if len(incomplete) > 0 || len(values) != n {
			t.Fatalf("%d targets: %d values, %v", n, len(values), incomplete)
		}
		got := decoded(t, values)
		if !maps.EqualFunc(got, want, func(a, b *memory) bool {
			return bytes.Equal(a.Notified, b.Notified) && bytes.Equal(a.NotifiedOfGroup, b.NotifiedOfGroup) && reflect.DeepEqual(a.Restarts, b.Restarts) && slices.EqualFunc(a.Probes, b.Probes, func(p, q probeMemory) bool {
				a, b := p.Memory, q.Memory
				return p.Kind == q.Kind && p.Name == q.Name && a.State == b.State && a.Since.Equal(b.Since) && a.Endpoint == b.Endpoint && a.Handler == b.Handler && a.Changes == b.Changes
			})
		}) {
			t.Errorf("%d targets: %d memories", n, len(got))
		}
		for target, b := range values {
			if len(b) > 720 {
				t.Errorf("%s with two probes and a driver needs %d bytes", target, len(b))
			}
		}
		if again, _ := got.encode(); !maps.EqualFunc(values, again, bytes.Equal) {
			t.Errorf("%d targets: equal memories have other bytes", n)
		}
	}
}

// A target with too many probes keeps its restarts, and is stored without some of its probes.
func TestTooLargeMemoriesAreCut(t *testing.T) {
	all := memoriesOf(2)
	for i := range 3000 {
		m := engine.Memory{State: verdict.State{Verdict: probe.Passing, Last: probe.Success, Run: 1, Instance: "web-1-0"}}
		all["shop/web-1"].Probes = append(all["shop/web-1"].Probes, probeMemory{Kind: probe.Readiness, Name: fmt.Sprintf("replica-%d", i), Memory: m})
	}
	values, incomplete := all.encode()
	if len(values["shop/web-1"]) > coord.MaxMemory || incomplete["shop/web-1"] == nil || incomplete["shop/web-0"] != nil {
		t.Fatalf("%d bytes, %v", len(values["shop/web-1"]), incomplete)
	}
	got := decoded(t, values)["shop/web-1"]
	if !reflect.DeepEqual(got.Restarts, all["shop/web-1"].Restarts) || len(got.Probes) < 500 {
		t.Errorf("%d probes are left, and %+v", len(got.Probes), got.Restarts)
	}
}

// A part that JSON cannot encode, such as a time of a clock that was far off, does not affect other parts.
func TestWhatCannotBeEncodedIsLeftOut(t *testing.T) {
	far := time.Date(12_000, 1, 1, 0, 0, 0, 0, time.UTC)
	for missing, spoil := range map[string]func(*memory){
		"restarts":                           func(m *memory) { m.Restarts.NotBefore = far },
		"penalty":                            func(m *memory) { m.Penalty.Value = math.NaN() },
		`ejection by the readiness probe ""`: func(m *memory) { m.Probes[1].Ejection = ejectionOf(far, far, "", "") },
		"state and instance":                 func(m *memory) { m.Shown = shown{State: probe.StateNotReady, Since: far} },
		`readiness probe ""`:                 func(m *memory) { m.Probes[1].Memory.Since = far },
	} {
		all := memoriesOf(1)
		of := all["shop/web-0"]
		of.Penalty = &verdict.Penalty{Value: 1}
		spoil(of)
		values, incomplete := all.encode()
		got := decoded(t, values)["shop/web-0"]
		parts := fmt.Sprintf("%d restarts, %d penalties, %d probes, %d told", count(got.Restarts != nil), count(got.Penalty != nil), len(got.Probes), count(got.Notified != nil))
		want := "1 restarts, 1 penalties, 2 probes, 1 told"
		switch {
		case missing == "restarts":
			want = "0" + want[1:]
		case missing == "penalty":
			want = strings.Replace(want, "1 penalties", "0 penalties", 1)
		case strings.HasPrefix(missing, "readiness"):
			want = strings.Replace(want, "2 probes", "1 probes", 1)
		}
		if err := incomplete["shop/web-0"]; parts != want || err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s there are %s, want %s; %v", missing, parts, want, err)
		}
	}
}

func count(is bool) int { return map[bool]int{true: 1}[is] }

// A cause is kept in few bytes while its probe has a verdict. One that a stranger has written is bounded and sanitized.
func TestACauseIsBounded(t *testing.T) {
	for _, now := range []probe.Verdict{probe.Failing, probe.Passing, probe.Undecided} {
		m := memories{}
		m.of("web").Probes = []probeMemory{{Kind: probe.Liveness, Name: "db", Memory: engine.Memory{State: stateWith(now), Since: time.Unix(1_700_000_000, 0)}}}
		p := &m["web"].Probes[0]
		without, _ := m.encode()
		p.Cause = cause{reason: "http.status", detail: "status 503\x1b[31m " + strings.Repeat("x", 1000)}
		values, _ := m.encode()
		if n := len(values["web"]) - len(without["web"]); n > maxCause+80 {
			t.Errorf("a cause has %d bytes", n)
		}
		got := decoded(t, values)["web"].Probes[0].Cause
		if got.reason != "http.status" || !strings.HasPrefix(got.detail, "status 503\ufffd[31m xxx") || !got.isOf(p.Memory) {
			t.Errorf("%v: %+v", now, got)
		}
	}
}

// TestWhatTakesATargetOutOfRotationIsStored has a target that is damped, and ejected by two of its probes, one of which
// fails meanwhile. Entries of strangers are bounded and sanitized.
func TestWhatTakesATargetOutOfRotationIsStored(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.FixedZone("CET", 3600))
	m := memories{}
	m.of("web").Probes = []probeMemory{
		{Kind: probe.Readiness, Name: "a", Memory: engine.Memory{State: verdict.State{Verdict: probe.Passing, Last: probe.Success, Run: 1, Instance: "1"}, Since: at}},
		{Kind: probe.Readiness, Name: "b", Memory: engine.Memory{State: stateWith(probe.Failing), Since: at}},
	}
	passing, failing := &m["web"].Probes[0], &m["web"].Probes[1]
	before, _ := m.encode() // as the previous release wrote it
	if got := decoded(t, before)["web"]; len(got.Probes) != 2 || got.Penalty != nil || got.Probes[0].Ejection != nil {
		t.Errorf("without penalty and ejection it is read as %+v", got)
	}
	m["web"].Penalty = &verdict.Penalty{Value: 2866.6, At: at, Since: at.Add(-time.Minute)}
	passing.Ejection = ejectionOf(at, at.Add(time.Minute), "tcp.refused\x1b[31m", strings.Repeat("x", 1000))
	failing.Ejection = passing.Ejection
	values, incomplete := m.encode()
	if n := len(values["web"]) - len(before["web"]); len(incomplete) > 0 || n > 2*(maxCause+200)+100 {
		t.Errorf("a penalty and two ejections have %d bytes, %v", n, incomplete)
	}
	all := decoded(t, values)
	got := all["web"]
	at = at.Truncate(time.Millisecond)
	if p := got.Penalty; p.Value != 2866.6 || !p.At.Equal(at) || !p.Since.Equal(at.Add(-time.Minute)) {
		t.Errorf("the penalty is %+v", p)
	}
	if e := got.Probes[0].Ejection; !e.Since.Equal(at) || !e.Until.Equal(at.Add(time.Minute)) || e.Reason != "tcp.refused\ufffd[31m" || len(e.Detail) > maxCause {
		t.Errorf("the ejection is %+v", e)
	}
	if e := got.Probes[1].Ejection; e != nil {
		t.Errorf("a probe that fails has the ejection %+v", e)
	}
	failing.Ejection = nil
	values, _ = m.encode()
	if again, _ := all.encode(); !maps.EqualFunc(values, again, bytes.Equal) {
		t.Error("equal memories have other bytes")
	}
}

func stateWith(v probe.Verdict) verdict.State {
	return verdict.State{Verdict: v, Last: probe.Failure, Run: 1, Instance: "1"}
}

func TestWhatALaterReleaseAddsIsLeftOut(t *testing.T) {
	for text, want := range map[string]string{
		`{"version":3,"probes":[{"kind":"readiness","memory":""}]}`: "the memory was not written by this release",
		`{"version":4}`:                   "the memory has version 4",
		`{"version":3,"probes":[{"kind`:   "the memory was not written by this release",
		"\x02\x10":                        "the memory was not written by this release",
		`{"version":3,"another":{"a":1}}`: "",
	} {
		m := memories{}
		err := m.add("a", []byte(text))
		if len(m) != count(err == nil) || len(m) > 0 && len(m["a"].Probes) > 0 || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %q", text, m, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	values, _ := memoriesOf(1).encode()
	b := values["shop/web-0"]
	for i := range b {
		f.Add(b[:i])
	}
	f.Add([]byte(`{"version":3,"penalty":{"value":1},"told":"YQ==","probes":[{"kind":"liveness","name":"<>","cause":"a","memory":"AQ=="}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := memories{}
		if err := m.add("web", b); err != nil && len(m) > 0 {
			t.Errorf("%d memories, and %v", len(m), err)
		}
		if _, incomplete := m.encode(); len(incomplete) > 0 && len(b) <= coord.MaxMemory/8 {
			t.Errorf("what was decoded cannot be encoded: %v", incomplete)
		}
	})
}

// Entries of strangers are bounded and sanitized, and a state of a later release does not affect other parts.
func TestWhatOthersShowIsBounded(t *testing.T) {
	m := memoriesOf(1)
	const target = "shop/web-0"
	follows := follows(target, m[target].Restarts)
	if in := shownInstance(follows, follows); in != nil {
		t.Errorf("an instance that follows from its restarts is stored as %+v", in)
	}
	failing := follows
	failing.Managed, failing.Reason, failing.Detail = false, probe.ReasonFloor, "the group \x1b[31m"+strings.Repeat("x", 2*probe.MaxDetail)
	m[target].Shown = shown{State: probe.StateRestartBlocked, Since: time.Unix(1_700_000_000, 0).UTC(), Instance: shownInstance(failing, follows)}
	values, _ := m.encode()
	got := decoded(t, values)[target].Shown
	in := got.instance(follows)
	if len(in.Detail) > probe.MaxDetail || !strings.HasPrefix(in.Detail, "the group \ufffd[31mxxx") || in.Reason != probe.ReasonFloor || in.Managed || in.ID != follows.ID || !in.Since.Equal(follows.Since) {
		t.Errorf("the instance is shown as %+v", in)
	}
	if got.State != probe.StateRestartBlocked || !got.Since.Equal(m[target].Shown.Since) {
		t.Errorf("the state is %v since %v", got.State, got.Since)
	}
	later := bytes.Replace(values[target], []byte("restart_blocked"), []byte("of_a_later_release"), 1)
	if got := decoded(t, map[string][]byte{target: later})[target]; got.Shown != (shown{}) || len(got.Probes) != 2 {
		t.Errorf("with a state of a later release it is %+v, with %d probes", got.Shown, len(got.Probes))
	}
}
