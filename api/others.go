package api

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
)

// Others are the targets of a cluster that other engines probe, as this engine knows them. Its functions must
// not block, and must be safe for concurrent use by multiple goroutines.
type Others struct {
	Engine  engineReader               // an *engine.Engine that never runs; a target of Config.Engine goes before one of it
	Name    string                     // of this engine in the cluster
	OwnerOf func(target string) string // the name of the engine that probes a target, which may be this one; "" if none does, or if it is not shared
	Heard   func() time.Time           // when what the engines share has last answered this engine while Engine had all of it; zero if never
}

// shown is a target as a Server shows it.
type shown struct {
	engine.TargetStatus
	isOther bool // another engine probes it
}

// results are the targets of an engine, and those of others in its cluster.
type results struct {
	own    engineReader
	others Others // its Engine is empty if there are none
}

// find returns a target, and whether there is one.
func (r *results) find(name string) (t shown, ok bool) {
	if t.TargetStatus, ok = r.own.Target(name); ok {
		return t, true
	}
	t.TargetStatus, ok = r.others.Engine.Target(name)
	t.isOther = ok
	return t, ok
}

// selected yields the targets of f, sorted by name, until ctx is done.
func (r *results) selected(ctx context.Context, f engine.Filter) iter.Seq[shown] {
	return func(yield func(shown) bool) {
		nextOther, stop := iter.Pull(r.others.Engine.Select(ctx, f))
		defer stop()
		other, hasOther := nextOther()
		for t := range r.own.Select(ctx, f) {
			for ; hasOther && other.Target <= t.Target; other, hasOther = nextOther() {
				if other.Target < t.Target && !yield(shown{other, true}) {
					return
				}
			}
			if !yield(shown{t, false}) {
				return
			}
		}
		for ; hasOther; other, hasOther = nextOther() {
			if !yield(shown{other, true}) {
				return
			}
		}
	}
}

// count returns how many targets f selects. A target that moves between engines may be counted twice.
func (r *results) count(ctx context.Context, f engine.Filter) int {
	return r.own.Count(ctx, f) + r.others.Engine.Count(ctx, f)
}

// states returns how many targets there are in each state, as count does.
func (r *results) states() engine.TargetStates {
	all := r.own.States()
	for state, n := range r.others.Engine.States() {
		all[state] += n
	}
	return all
}

// subscription is what *engine.Subscription and *engine.TargetSubscription have in common.
type subscription[S any] interface {
	Next(ctx context.Context) (S, error)
	Close()
}

// probes returns the changes of probes, as engine.Subscription.Next, and what ends them.
func (r *results) probes() (next func(context.Context) (engine.Status, error), end func()) {
	if r.others.OwnerOf == nil { // there are no others
		sub := r.own.Subscribe()
		return sub.Next, sub.Close
	}
	return merge(r.own.Subscribe(), r.others.Engine.Subscribe(), func(s engine.Status) engine.Status {
		t, _ := r.find(s.ID.Target)
		for _, p := range t.Probes {
			if p.ID == s.ID {
				return p
			}
		}
		return engine.Status{ID: s.ID, Removed: true}
	})
}

// targets returns the changes of targets, as engine.TargetSubscription.Next, and what ends them.
func (r *results) targets() (next func(context.Context) (engine.TargetStatus, error), end func()) {
	if r.others.OwnerOf == nil {
		sub := r.own.SubscribeTargets()
		return sub.Next, sub.Close
	}
	return merge(r.own.SubscribeTargets(), r.others.Engine.SubscribeTargets(), func(t engine.TargetStatus) engine.TargetStatus {
		if now, ok := r.find(t.Target); ok {
			return now.TargetStatus
		}
		return engine.TargetStatus{Target: t.Target, Removed: true}
	})
}

// merge returns the changes of two subscriptions, each as it is now in both.
func merge[S any](a, b subscription[S], now func(S) S) (next func(context.Context) (S, error), end func()) {
	changes := make(chan S)
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	for _, sub := range []subscription[S]{a, b} {
		reading.Go(func() {
			defer sub.Close()
			for {
				s, err := sub.Next(ctx)
				if err != nil {
					return
				}
				select {
				case changes <- s:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	next = func(ctx context.Context) (S, error) {
		select {
		case s := <-changes:
			return now(s), nil
		case <-ctx.Done():
			var none S
			return none, ctx.Err()
		}
	}
	return next, func() { cancel(); reading.Wait() }
}

// setOwner says who probes a target, in a cluster.
func (r *results) setOwner(to *Target, isOther bool) {
	if r.others.OwnerOf == nil {
		return
	}
	if to.Owner = r.others.OwnerOf(to.Name); isOther {
		to.Heard = utc(r.others.Heard())
	}
}

// isOther reports whether another engine probes a target, and which one does; "" if none does now.
func (r *results) isOther(target string) (owner string, isOther bool) {
	if t, _ := r.find(target); !t.isOther {
		return "", false
	}
	return r.others.OwnerOf(target), true
}

// checkOwner returns the error of a request to restart, stop or start a target that another engine probes.
func (s *Server) checkOwner(target string) error {
	owner, isOther := s.results.isOther(target)
	switch {
	case !isOther:
		return nil
	case owner == "":
		return errorf(http.StatusConflict, "no engine owns the target %q now: ask again when one has taken it over", target)
	case owner == s.results.others.Name:
		return errorf(http.StatusConflict, "this engine is taking the target %q over: ask again in a moment", target)
	}
	return errorf(http.StatusMisdirectedRequest, "the engine %q owns the target %q: ask that one, by --address", owner, target)
}

// explainOwner says who probes the target, if another engine does.
func (t Target) explainOwner(now time.Time) string {
	switch {
	case t.Heard.IsZero():
		return ""
	case t.Owner == "":
		return fmt.Sprintf("No engine of the cluster probes it now: all of this is what its last owner has stored, and this engine has heard from etcd%s.", before(t.Heard, now))
	}
	return fmt.Sprintf("The engine %s probes it, and stores its verdicts, but not each result: this engine has heard from etcd%s.", t.Owner, before(t.Heard, now))
}
