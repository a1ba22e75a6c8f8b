package coord_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/tests/coordtest"
)

// hold returns an act that takes a time.
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
		f := &frozen{Local: coordtest.NewLocal()}
		co, end := run(t, coord.Config{Name: "a", Backend: f})
		synctest.Wait()
		if err := co.Acts().Do(t.Context(), coord.Order{Target: "web", Instance: "1"}, hold(10*coord.DefaultTTL)); err != nil {
			t.Errorf("an act of ten times the TTL: %v", err)
		}
		ended := make(chan error, 1)
		go func() {
			ended <- co.Acts().Do(t.Context(), coord.Order{Target: "web", Instance: "2"}, hold(10*coord.DefaultTTL))
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
		f := &frozen{Local: coordtest.NewLocal()}
		co, _ := run(t, coord.Config{Name: "a", Backend: f})
		synctest.Wait()
		f.isEnding.Store(true)
		began := time.Now()
		err := co.Acts().Do(t.Context(), coord.Order{Target: "web", Instance: "1"}, hold(time.Hour))
		if took := time.Since(began); !errors.Is(err, coord.ErrNotAllowed) || took >= coord.DefaultTTL {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestAnActEndsOnceTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frozen{Local: coordtest.NewLocal()}
		co, _ := run(t, coord.Config{Name: "a", Backend: f})
		synctest.Wait()
		time.AfterFunc(time.Second, func() { _ = f.Revoke(t.Context(), 1) }) // an operator revokes the lease
		began := time.Now()
		err := co.Acts().Do(t.Context(), coord.Order{Target: "web", Instance: "1"}, hold(time.Hour))
		if took := time.Since(began); !errors.Is(err, coord.ErrNotAllowed) || took > time.Second+coord.DefaultTTL/4 {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// sparing is a Backend that counts the entries that it returns.
type sparing struct {
	*coordtest.Local
	read atomic.Int64
}

func (s *sparing) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	entries, at, err := s.Local.Range(ctx, prefix)
	s.read.Add(int64(len(entries)))
	return entries, at, err
}

func TestAnActReadsTheRecordOfItsTargetOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sparing{Local: coordtest.NewLocal()}
		co, _ := run(t, coord.Config{Name: "a", Backend: s})
		synctest.Wait()
		for i := range 100 { // other targets in the same shard whose names have a common prefix
			key := fmt.Sprintf("act/%v/web-%d", shard.Of("web"), i)
			if _, err := s.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: key, Value: []byte("{}")}}}); err != nil {
				t.Fatal(err)
			}
		}
		s.read.Store(0)
		if err := co.Acts().Do(t.Context(), coord.Order{Target: "web", Instance: "1"}, hold(0)); err != nil {
			t.Fatal(err)
		}
		if n := s.read.Load(); n > 1 {
			t.Errorf("it has read %d entries", n)
		}
	})
}

// away is a Backend that does not respond to requests about keys with a prefix, if it is set, until they time out.
type away struct {
	*coordtest.Local
	prefix atomic.Pointer[string]
}

func (a *away) leave(prefix string) { a.prefix.Store(&prefix) }

func (a *away) wait(ctx context.Context, key string) error {
	if p := a.prefix.Load(); p == nil || !strings.HasPrefix(key, *p) {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (a *away) KeepAlive(ctx context.Context, l coord.Lease) error {
	return cmp.Or(a.wait(ctx, ""), a.Local.KeepAlive(ctx, l))
}

func (a *away) Revoke(ctx context.Context, l coord.Lease) error {
	return cmp.Or(a.wait(ctx, ""), a.Local.Revoke(ctx, l))
}

func (a *away) Get(ctx context.Context, key string) (coord.Entry, error) {
	if err := a.wait(ctx, key); err != nil {
		return coord.Entry{}, err
	}
	return a.Local.Get(ctx, key)
}

func (a *away) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if err := a.wait(ctx, all[0].Then[0].Key); err != nil {
		return nil, err
	}
	return a.Local.Commit(ctx, all...)
}

func TestAnActDoesNotWaitForAStoreThatIsAway(t *testing.T) {
	order := coord.Order{Target: "web", Instance: "1"}
	for name, test := range map[string]struct {
		away  string        // keys about which there is no response
		limit time.Duration // time limit of the act
		want  error
	}{
		"with its lease":  {"", coord.DefaultTTL, coord.ErrNotAllowed},
		"with its record": {"act/", coord.DefaultTTL + time.Second, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &away{Local: coordtest.NewLocal()}
				co, _ := run(t, coord.Config{Name: "a", Backend: a})
				synctest.Wait()
				a.leave(test.away)
				began := time.Now()
				err := co.Acts().Do(t.Context(), order, hold(0))
				if took := time.Since(began); !errors.Is(err, test.want) || took > test.limit {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
	t.Run("after what it has done", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := &away{Local: coordtest.NewLocal()}
			co, _ := run(t, coord.Config{Name: "a", Backend: a})
			synctest.Wait()
			began := time.Now()
			err := co.Acts().Do(t.Context(), order, func(context.Context) error { a.leave("act/"); return nil })
			if took := time.Since(began); err == nil || took > 10*time.Second {
				t.Errorf("after %v: %v", took, err)
			}
		})
	})
}

// The caller of an act returns only once the engine has left.
func TestTheEndDoesNotWaitForAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &away{Local: coordtest.NewLocal()}
		co, end := run(t, coord.Config{Name: "a", Backend: a, TTL: 5 * time.Minute})
		synctest.Wait()
		a.leave("")
		acted := make(chan error, 1)
		go func() {
			acted <- co.Acts().Do(t.Context(), coord.Order{Target: "web", Instance: "1"}, hold(0))
		}()
		synctest.Wait()
		began := time.Now()
		end()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		if err := <-acted; err == nil {
			t.Error("it has acted")
		}
	})
}

func TestTheEndWaitsForActsForATime(t *testing.T) {
	for name, endless := range map[string]bool{"that end with their context": false, "that do not end": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, never := coordtest.NewLocal(), make(chan struct{})
				co, end := run(t, coord.Config{Name: "a", Backend: l})
				synctest.Wait()
				go co.Acts().Do(t.Context(), coord.Order{Target: "web", Instance: "1"}, func(ctx context.Context) error {
					<-ctx.Done()
					if endless {
						<-never
					}
					return ctx.Err()
				})
				synctest.Wait()
				began := time.Now()
				end()
				took := time.Since(began)
				members, _, err := l.Range(t.Context(), "fleet/m/")
				if took < coord.EndTimeout || took > coord.EndTimeout+10*time.Second || err != nil || (len(members) > 0) != endless {
					t.Errorf("after %v the members are %v, %v", took, members, err)
				}
				close(never)
			})
		})
	}
}

func TestADeadlineEndsWithItsAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co, _ := run(t, coord.Config{Name: "a", Backend: coordtest.NewLocal()})
		synctest.Wait()
		if again, err := co.Acts().ExpireEnded(t.Context(), coord.Order{Target: "web", Instance: "1"}); err != nil || again {
			t.Errorf("the deadline of an act that has ended is looked at again: %v, %v", again, err)
		}
	})
}

// The store rejects a request, for instance during a leader election, for a shorter time than the lease lasts.
func TestARecordIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &refusing{Backend: coordtest.NewLocal()}
		co, _ := run(t, coord.Config{Name: "a", Backend: b})
		synctest.Wait()
		o := coord.Order{Target: "web", Instance: "1"}
		err := co.Acts().Do(t.Context(), o, func(context.Context) error {
			b.refuse("act/")
			time.AfterFunc(coord.DefaultTTL/2, func() { b.refuse("") })
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if err := co.Acts().Do(t.Context(), o, nil); !errors.Is(err, coord.ErrDone) {
			t.Errorf("it is done again: %v", err)
		}
	})
}

// refusing is a Backend that counts leases and, if prefix is set, immediately rejects changes to keys with that prefix.
type refusing struct {
	coord.Backend
	prefix atomic.Pointer[string]
	grants atomic.Int64 // number of leases with the TTL maxAge
	last   atomic.Int64 // the latest of these
}

func (b *refusing) refuse(prefix string) { b.prefix.Store(&prefix) }

func (b *refusing) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if p := b.prefix.Load(); p != nil && *p != "" && strings.HasPrefix(all[0].Then[0].Key, *p) {
		return nil, errors.New("permission denied")
	}
	return b.Backend.Commit(ctx, all...)
}

func (b *refusing) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	l, err := b.Backend.Grant(ctx, ttl)
	if ttl == maxAge {
		b.grants.Add(1)
		b.last.Store(int64(l))
	}
	return l, err
}

// The timers of a suspended machine stop, and the lease expires.
func TestAnActEndsWhenTheMachineWasSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frozen{Local: coordtest.NewLocal()}
		var suspended atomic.Int64
		co, err := coord.New(coord.Config{Name: "a", Backend: f})
		if err != nil {
			t.Fatal(err)
		}
		co.SetSuspended(func() time.Duration { return time.Duration(suspended.Load()) })
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); co.Run(ctx) }()
		go coordtest.MarkLoaded(ctx, co)
		synctest.Wait()
		f.isEnding.Store(true) // the responses are missing that would report the expired lease
		acted := make(chan error, 1)
		go func() {
			acted <- co.Acts().Do(t.Context(), coord.Order{Target: "web", Instance: "1"}, hold(time.Hour))
		}()
		synctest.Wait()
		suspended.Store(int64(10 * time.Minute))
		resumed := time.Now()
		if co.Allowed() || co.Acts().MayBegin("web") || co.Status().Left > 0 {
			t.Error("it may act")
		}
		if err := <-acted; !errors.Is(err, coord.ErrNotAllowed) || time.Since(resumed) > time.Second {
			t.Errorf("%v after it was resumed: %v", time.Since(resumed), err)
		}
		end()
		<-ended
	})
}

// Order.Before may prevent an act from beginning, and depends on whether this engine still owns the shard.
func TestAnActThatMayNotBeginIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		co, _ := run(t, coord.Config{Name: "a", Backend: b})
		synctest.Wait()
		withheld, calls := errors.New("withheld"), 0
		do := func(context.Context) error { calls++; return nil }
		for _, want := range []error{withheld, nil, coord.ErrDone} {
			o := coord.Order{Target: "web", Instance: "1", Before: func(ctx context.Context, owned coord.Condition) error {
				made, err := b.Commit(ctx, coord.Transaction{If: []coord.Condition{owned}})
				if err != nil || !made[0] || !co.Acts().IsActing("web") {
					t.Errorf("it is called with %+v: %v, %v", owned, made, err)
				}
				return want
			}}
			if err := co.Acts().Do(t.Context(), o, do); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			if got := records(t, b, shard.Of("web")); (got == "") != (want == withheld) {
				t.Errorf("after %v recorded are %q", want, got)
			}
		}
		if calls != 1 {
			t.Errorf("it was done %d times", calls)
		}
	})
}
