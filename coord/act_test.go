package coord_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/coord/shard"
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

// sparing is a Backend that counts the entries which it returns.
type sparing struct {
	*coord.Local
	read atomic.Int64
}

func (s *sparing) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	entries, at, err := s.Local.Range(ctx, prefix)
	s.read.Add(int64(len(entries)))
	return entries, at, err
}

func TestAnActReadsTheRecordOfItsTargetOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sparing{Local: coord.NewLocal()}
		co, _ := run(t, coord.Config{Name: "a", Backend: s})
		synctest.Wait()
		for i := range 100 { // as other targets whose names begin with the same text, in one shard
			key := fmt.Sprintf("act/%v/restart/web-%d", shard.Of("web"), i)
			if _, err := s.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: key, Value: []byte("{}")}}}); err != nil {
				t.Fatal(err)
			}
		}
		s.read.Store(0)
		if err := co.Act(t.Context(), coord.Order{Name: "restart", Target: "web", Instance: "1"}, hold(0)); err != nil {
			t.Fatal(err)
		}
		if n := s.read.Load(); n > 1 {
			t.Errorf("it has read %d entries", n)
		}
	})
}
