package etcd_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/etcd"
	"github.com/sonde-probe/sonde/fleet/shard"
)

var transitions = flag.Int("transitions", 20_000, "transitions that are stored, of a tenth as many targets; a million take minutes")

// memorySize is the size of the memory of a target with two probes and a driver, in bytes.
const memorySize = 690

// The figures of docs/fleet.md are for a million transitions: -transitions 1000000 -v.
func TestADatabaseStaysSmallAfterManyTransitions(t *testing.T) {
	for name, retained := range map[string]int{"not compacted": *transitions, "compacted": *transitions / 10} {
		t.Run(name, func(t *testing.T) {
			nodes := cluster(t, "http", 1)
			co := run(t, open(t, etcd.Config{Endpoints: endpoints(nodes)}))
			client, err := clientv3.New(clientv3.Config{Endpoints: endpoints(nodes)})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			size, revisions := store(t, co, client, nodes[0].client, retained)
			t.Logf("%d transitions of %d targets: %d revisions, %.1f MB", *transitions, *transitions/10, revisions, float64(size)/1e6)
			const each = 980 // bytes of an entry in etcd, with its key and its share of bbolt's free space
			kept := min(2*retained, *transitions) + *transitions/10
			if limit := int64(kept)*each + 5<<20; size > limit {
				t.Errorf("the database has %d bytes, at most %d were expected", size, limit)
			}
		})
	}
}

// store stores transitions, and compacts old revisions after each retained transitions. It returns the size of the
// database and the number of revisions.
func store(t *testing.T, co *coord.Coordinator, client *clientv3.Client, endpoint string, retained int) (size, revisions int64) {
	t.Helper()
	const together = coord.MaxTransactions // transitions per request, as when many targets fail
	before, err := client.Status(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	last := before.Header.Revision // the next compaction is up to this revision
	for n := 0; n < *transitions; n += together {
		owned, _ := co.Owned()
		var all []coord.Memory
		has := map[string]bool{}
		for len(all) < together {
			target := fmt.Sprintf("shop/web-%d", rand.IntN(*transitions/10))
			if has[target] {
				continue
			}
			has[target] = true
			value := make([]byte, memorySize)
			for i := range value {
				value[i] = byte(rand.Uint32())
			}
			all = append(all, coord.Memory{Target: target, Token: owned[shard.Of(target)].Token, Value: value})
		}
		for _, err := range co.Store(t.Context(), all...) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if (n+together)%retained == 0 && retained < *transitions {
			now, err := client.Status(t.Context(), endpoint)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Compact(t.Context(), last, clientv3.WithCompactPhysical()); err != nil {
				t.Fatal(err)
			}
			last = now.Header.Revision
		}
	}
	after, err := client.Status(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return after.DbSize, after.Header.Revision - before.Header.Revision
}
