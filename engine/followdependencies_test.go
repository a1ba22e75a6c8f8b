package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// The targets of a large fleet change often, and hardly any of them has dependents in this engine: changes of the others do not
// take its lock, which each of its attempts needs.
func TestTargetsWithoutDependentsDoNotTakeTheLockOfTheEngineThatFollows(t *testing.T) {
	e, others := New(Config{NoIsolationCheck: true}), New(Config{NoIsolationCheck: true})
	if _, err := e.Change(Change{Dependencies: map[string][]string{"web": {"db"}}}); err != nil {
		t.Fatal(err)
	}
	changes := newSubscription(others, nil)
	changes.existing.ended = true // there are no existing targets to deliver
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { e.Admin().followDependencies(ctx, changes) })
	defer following.Wait()
	defer cancel()
	isRead := func() bool {
		changes.mu.Lock()
		defer changes.mu.Unlock()
		return len(changes.pending) == 0
	}
	e.scheduler.mu.Lock()
	defer e.scheduler.mu.Unlock()
	for i := range 1000 {
		changes.mark(probe.ID{Target: fmt.Sprint("other-", i)}, probeChanged)
	}
	testsync.Until(t, "all changes are read while the lock is held", isRead)
}
