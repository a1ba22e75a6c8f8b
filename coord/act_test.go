package coord_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/coord"
)

// hold is an act that takes a time.
func hold(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func TestAnActMayTakeLongerThanTheLeaseThatIsKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frozen{Local: coord.NewLocal()}
		co, end := run(t, coord.Config{Name: "a", Backend: f})
		synctest.Wait()
		if err := co.Act(t.Context(), coord.Order{Name: "restart", Target: "web", Instance: "1"}, hold(10*coord.DefaultTTL)); err != nil {
			t.Errorf("an act of ten times the TTL: %v", err)
		}
		ended := make(chan error, 1)
		go func() {
			ended <- co.Act(t.Context(), coord.Order{Name: "restart", Target: "web", Instance: "2"}, hold(10*coord.DefaultTTL))
		}()
		synctest.Wait()
		end() // it waits for the act, and keeps the lease meanwhile
		if err := <-ended; err != nil {
			t.Errorf("an act while the engine ends: %v", err)
		}
		if co.Allowed() {
			t.Error("it may act after it has left")
		}
	})
}

func TestAnActEndsBeforeTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frozen{Local: coord.NewLocal()}
		co, _ := run(t, coord.Config{Name: "a", Backend: f})
		synctest.Wait()
		f.isEnding.Store(true)
		began := time.Now()
		err := co.Act(t.Context(), coord.Order{Name: "restart", Target: "web", Instance: "1"}, hold(time.Hour))
		if took := time.Since(began); !errors.Is(err, coord.ErrNotAllowed) || took >= coord.DefaultTTL {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestAnActEndsOnceTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frozen{Local: coord.NewLocal()}
		co, _ := run(t, coord.Config{Name: "a", Backend: f})
		synctest.Wait()
		time.AfterFunc(time.Second, func() { _ = f.Revoke(t.Context(), 1) }) // an operator ends it
		began := time.Now()
		err := co.Act(t.Context(), coord.Order{Name: "restart", Target: "web", Instance: "1"}, hold(time.Hour))
		if took := time.Since(began); !errors.Is(err, coord.ErrNotAllowed) || took > time.Second+coord.DefaultTTL/4 {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
