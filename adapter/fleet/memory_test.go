package fleet

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// memoriesOf are the memories of so many targets with two probes and a driver each.
func memoriesOf(targets int) memories {
	all := memories{map[probe.ID]engine.Memory{}, map[string]restart.Memory{}}
	for i := range targets {
		target, id := fmt.Sprintf("shop/web-%d", i), fmt.Sprintf("web-%d-%08x", i, rand.Uint32())
		m := engine.Memory{
			State:    verdict.State{Verdict: probe.Passing, Last: probe.Success, Run: 1, Instance: id},
			Since:    time.Unix(1_700_000_000, rand.Int64N(1e18)).Round(0),
			Endpoint: rand.Uint64(), Handler: rand.Uint32(), Changes: uint64(i),
		}
		all.probes[probe.ID{Target: target, Kind: probe.Readiness}] = m
		all.probes[probe.ID{Target: target, Kind: probe.Liveness, Name: "db"}] = m
		all.restarts[target] = restart.Memory{
			Revision: restart.Unit{Revision: target}.RevisionID(), Instance: id, Since: m.Since.UTC(), Started: 3, Exits: 2,
			NotBefore: m.Since.UTC().Add(time.Minute), LastExit: "exit status 143", LastReason: probe.ReasonEnded,
		}
	}
	return all
}

func TestMemoriesAreDecodedAsTheyWereEncoded(t *testing.T) {
	for _, n := range []int{0, 1, 244} { // 244: of a million targets
		want := memoriesOf(n)
		b, err := want.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(b)
		if err != nil || !maps.Equal(got.restarts, want.restarts) || !maps.EqualFunc(got.probes, want.probes, func(a, b engine.Memory) bool {
			return a.State == b.State && a.Since.Equal(b.Since) && a.Endpoint == b.Endpoint && a.Handler == b.Handler && a.Changes == b.Changes
		}) {
			t.Errorf("%d targets: %d memories of %d, %v", n, len(got.probes), len(want.probes), err)
		}
		t.Logf("%d targets with two probes and a driver each need %d bytes", n, len(b))
		if len(b) > 180*(n+1) || len(b) > coord.MaxMemories {
			t.Errorf("%d targets with two probes and a driver each need %d bytes", n, len(b))
		}
		again, err := got.encode()
		if err != nil || !bytes.Equal(b, again) {
			t.Errorf("%d targets: equal memories have other bytes: %v", n, err)
		}
	}
}

func TestEntriesOfALaterReleaseAreLeftOut(t *testing.T) {
	b, err := compress([]byte{17, 1, 'a', 1, 'b', 1, 'c', byte(probe.Readiness), 1, 'a', 0, 0})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decode(b); err == nil || !strings.Contains(err.Error(), "readiness") {
		t.Errorf("an empty memory of a probe was decoded: %v", err)
	}
	if b, err = compress([]byte{17, 1, 'a', 1, 'b', 1, 'c'}); err != nil {
		t.Fatal(err)
	}
	if m, err := decode(b); err != nil || len(m.probes)+len(m.restarts) > 0 {
		t.Errorf("%v, %v", m, err)
	}
}

func FuzzDecode(f *testing.F) {
	b, err := memoriesOf(2).encode()
	if err != nil {
		f.Fatal(err)
	}
	for i := range b {
		f.Add(b[:i])
	}
	f.Add(append([]byte{version + 1}, b[1:]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil && m.probes != nil {
			t.Errorf("%d memories, and %v", len(m.probes), err)
		}
		if err != nil {
			return
		}
		if _, err := m.encode(); err != nil {
			t.Errorf("what was decoded cannot be encoded: %v", err)
		}
	})
}
