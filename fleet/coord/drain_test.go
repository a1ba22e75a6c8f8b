package coord_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/tests/coordtest"
)

func TestOperatorsWhoDrainAllMembersAtOnceLeaveOne(t *testing.T) {
	b := coordtest.NewLocal()
	const n = 8
	for i := range n {
		member := coord.Transaction{Then: []coord.Change{{Key: fmt.Sprint("fleet/m/", i), Value: []byte(`{"lease":1}`)}}}
		if _, err := b.Commit(t.Context(), member); err != nil {
			t.Fatal(err)
		}
	}
	var draining sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		draining.Go(func() { _, errs[i] = coord.PutDrain(t.Context(), b, coord.Drain{Name: fmt.Sprint(i)}, false) })
	}
	draining.Wait()
	refused := 0
	for _, err := range errs {
		if errors.Is(err, coord.ErrLastMember) {
			refused++
		} else if err != nil {
			t.Error(err)
		}
	}
	if o, err := coord.ReadOverview(t.Context(), b); err != nil || refused != 1 || len(o.Drains) != n-1 {
		t.Errorf("%d of %d are drained, %d were refused, %v", len(o.Drains), n, refused, err)
	}
}

func TestAnOrderToDrainIsReadAsFarAsItCanBe(t *testing.T) {
	b := coordtest.NewLocal()
	for name, value := range map[string]string{"a": "", "b": "{", "c": `{"by":"` + strings.Repeat("x", coord.MaxDrainBy+1) + `"}`, "d": `{"by":"root@ops","later":1}`} {
		if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: "fleet/drain/" + name, Value: []byte(value)}}}); err != nil {
			t.Fatal(err)
		}
	}
	o, err := coord.ReadOverview(t.Context(), b)
	if got := fmt.Sprint(o.Drains); err != nil || len(o.Drains) != 4 || strings.Contains(got, "xx") || o.Drains[3].By != "root@ops" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := coord.PutDrain(t.Context(), b, coord.Drain{By: strings.Repeat("x", coord.MaxDrainBy+1)}, true); err == nil || !strings.Contains(err.Error(), "at most 512 are allowed") {
		t.Errorf("a long name of an operator: %v", err)
	}
}

// While the last act for a target is under way, its shard stays with the drained engine.
func TestADrainedEngineKeepsAShardUntilItsActHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		a, _ := run(t, coord.Config{Name: "a", Backend: b})
		synctest.Wait()
		run(t, coord.Config{Name: "b", Backend: b})
		synctest.Wait()
		web := ownedBy(a)
		hasBegun, mayEnd := make(chan struct{}), make(chan struct{})
		var acting sync.WaitGroup
		acting.Go(func() {
			err := a.Acts().Do(t.Context(), coord.Order{Target: web, Instance: "1"}, func(context.Context) error {
				close(hasBegun)
				<-mayEnd
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		<-hasBegun
		if _, err := coord.PutDrain(t.Context(), b, coord.Drain{Name: "a"}, false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		releaseAll := func() {
			owned, _ := a.Owned()
			var leaving []shard.ID
			for id, o := range owned {
				if !o.Leaving {
					t.Errorf("shard %v is not to leave", id)
				}
				leaving = append(leaving, id)
			}
			if err := a.Release(t.Context(), leaving...); err != nil {
				t.Error(err)
			}
		}
		acting.Go(releaseAll)
		synctest.Wait()
		if owned, _ := a.Owned(); len(owned) != 1 || owned[shard.Of(web)].Token == 0 {
			t.Errorf("it owns %d shards while it acts", len(owned))
		}
		close(mayEnd)
		acting.Wait()
		releaseAll() // the memories that the act has changed are stored
		synctest.Wait()
		if owned, _ := a.Owned(); len(owned) != 0 {
			t.Errorf("it owns %d shards in the end", len(owned))
		}
	})
}

// ownedBy returns a target in a shard that an engine owns and keeps.
func ownedBy(co *coord.Coordinator) string {
	owned, _ := co.Owned()
	for i := 0; ; i++ {
		target := fmt.Sprint("web-", i)
		if o, ok := owned[shard.Of(target)]; ok && !o.Leaving {
			return target
		}
	}
}
