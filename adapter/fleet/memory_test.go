package fleet

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// memoriesOf are the memories of so many targets.
func memoriesOf(targets int) map[probe.ID]engine.Memory {
	all := map[probe.ID]engine.Memory{}
	for i := range targets {
		m := engine.Memory{
			State:    verdict.State{Verdict: probe.Passing, Last: probe.Success, Run: 1, Instance: fmt.Sprintf("web-%d-%08x", i, rand.Uint32())},
			Since:    time.Unix(1_700_000_000, rand.Int64N(1e18)).Round(0),
			Endpoint: rand.Uint64(), Handler: rand.Uint32(), Changes: uint64(i),
		}
		all[probe.ID{Target: fmt.Sprintf("shop/web-%d", i), Kind: probe.Readiness}] = m
		all[probe.ID{Target: fmt.Sprintf("shop/web-%d", i), Kind: probe.Liveness, Name: "db"}] = m
	}
	return all
}

func TestMemoriesAreDecodedAsTheyWereEncoded(t *testing.T) {
	for _, n := range []int{0, 1, 250} { // 250: of a million targets
		want := memoriesOf(n)
		b, err := encode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(b)
		if err != nil || !maps.EqualFunc(got, want, func(a, b engine.Memory) bool {
			return a.State == b.State && a.Since.Equal(b.Since) && a.Endpoint == b.Endpoint && a.Handler == b.Handler && a.Changes == b.Changes
		}) {
			t.Errorf("%d targets: %d memories of %d, %v", n, len(got), len(want), err)
		}
		if len(b) > 100*(n+1) || len(b) > coord.MaxMemories {
			t.Errorf("%d targets with two probes each need %d bytes", n, len(b))
		}
	}
}

func FuzzDecode(f *testing.F) {
	b, err := encode(memoriesOf(2))
	if err != nil {
		f.Fatal(err)
	}
	for i := range b {
		f.Add(b[:i])
	}
	f.Add(append([]byte{version + 1}, b[1:]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		memories, err := decode(b)
		if err != nil && memories != nil {
			t.Errorf("%d memories, and %v", len(memories), err)
		}
		if err != nil {
			return
		}
		if _, err := encode(memories); err != nil {
			t.Errorf("what was decoded cannot be encoded: %v", err)
		}
	})
}
